//! Layers, copied one by one beside computing.
//!
//! ```text
//! a thread   │ copy 0 │ copy 1  │ copy 2 │ …
//! this one            │ compute 0        │ compute 1 │ …
//! ```
//!
//! A layer is handed from the thread that copies it to the one that computes it: neither can touch
//! it while the other has it. Copying runs ahead as far as it gets; it writes where the step wants
//! it anyway.

use std::sync::mpsc::{SyncSender, sync_channel};

use headstart_core::BlockId;
use headstart_core::transfer::DevicePart;
use headstart_scheduler::Copies;

use crate::kv::LayerKv;

/// Bytes of a layer's copies from which on a thread pays.
pub(super) const WORTH_A_THREAD: usize = 256 << 10;

impl DevicePart for LayerKv {
    fn block_bytes(&self) -> usize {
        self.stored_bytes()
    }

    fn read(&self, block: BlockId, bytes: &mut [u8]) {
        self.store(block, bytes);
    }

    fn write(&mut self, block: BlockId, bytes: &[u8]) {
        self.load(block, bytes);
    }
}

/// Computes each layer behind its copies, in order: beside the copies of those that follow, where a
/// layer's are at least `beside_bytes`.
pub(super) fn each_layer(
    layers: &mut [LayerKv],
    mut copies: Option<Copies<'_>>,
    beside_bytes: usize,
    mut compute: impl FnMut(usize, &mut LayerKv),
) {
    let block_bytes = layers.first().map_or(0, LayerKv::stored_bytes);
    if let Some(copies) = &mut copies
        && copies.num_blocks() * block_bytes >= beside_bytes
        && beside(layers, copies, &mut compute)
    {
        return;
    }
    for (index, layer) in layers.iter_mut().enumerate() {
        if let Some(copies) = &mut copies {
            copies.copy(index, layer);
        }
        compute(index, layer);
    }
}

/// Copies on a thread of its own. False, and nothing was done, where the system gives none.
fn beside(
    layers: &mut [LayerKv],
    copies: &mut Copies<'_>,
    mut compute: impl FnMut(usize, &mut LayerKv),
) -> bool {
    let (ready, copied) = sync_channel(layers.len());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("headstart-copy".to_owned());
        let copier = thread.spawn_scoped(scope, || copy(layers, copies, ready));
        if copier.is_err() {
            return false;
        }
        for (index, layer) in copied.iter().enumerate() {
            compute(index, layer);
        }
        true
    })
}

fn copy<'a>(
    layers: &'a mut [LayerKv],
    copies: &mut Copies<'_>,
    ready: SyncSender<&'a mut LayerKv>,
) {
    for (index, layer) in layers.iter_mut().enumerate() {
        copies.copy(index, layer);
        if ready.send(layer).is_err() {
            // Computing has panicked.
            return;
        }
    }
}
