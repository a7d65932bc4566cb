//! Copies between the device and host memory in a step, part by part.
//!
//! ```text
//! part 0   read what is stored ─► write what arrived ─► compute
//! part 1                          read what is stored ─► write what arrived ─► compute
//! ```
//!
//! In each part the order is the one above, so that a block may be stored and overwritten in the
//! same step: what it held goes to the store. Parts know nothing of one another: while one is
//! computed the next can be copied, on another thread. Who is given copies takes them to the end:
//! dropped, they say that all parts were read.

use headstart_core::BlockMover;
use headstart_core::transfer::DevicePart;

use crate::Arrival;

/// Copies to make during a step.
pub struct Copies<'a> {
    mover: &'a mut dyn BlockMover,
    arrivals: &'a [Arrival],
}

impl Drop for Copies<'_> {
    fn drop(&mut self) {
        self.mover.end_reads();
    }
}

impl<'a> Copies<'a> {
    /// The copies of a step: blocks of `arrivals`, which `mover` has loaded, and `stored` blocks
    /// that it is to store. `None` if there is nothing to copy.
    pub fn new(
        mover: &'a mut dyn BlockMover,
        arrivals: &'a [Arrival],
        stored: usize,
    ) -> Option<Self> {
        let has_arrived = arrivals.iter().any(|arrival| !arrival.blocks.is_empty());
        (stored > 0 || has_arrived).then(|| Self { mover, arrivals })
    }

    /// Copies one part. To be called once for each, before anything is computed in it.
    ///
    /// # Panics
    /// If what has arrived is no longer available.
    pub fn copy(&mut self, part: usize, device: &mut dyn DevicePart) {
        // Reads come first: an arrival in the same step may overwrite a block that is to be stored.
        self.mover.read(part, device);
        for arrival in self.arrivals {
            let bytes = self.mover.part(arrival.claim.name, part);
            let bytes = bytes.expect("an arrived copy stays until it is released");
            let len = device.block_bytes();
            for &(number, block) in &arrival.blocks {
                device.write(block, &bytes[number * len..(number + 1) * len]);
            }
        }
    }
}
