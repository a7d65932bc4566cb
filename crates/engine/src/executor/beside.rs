//! Layers, copied one by one beside computing.
//!
//! ```text
//! pool   │ copy 0 │ compute 0 │ compute 1 │ compute 2 │ …
//!                 │ copy 1    │ copy 2    │ …
//! ```
//!
//! A layer is borrowed either for copying or for computing: neither can touch it while the other
//! does. Copying is one more task of the pool that computes. A thread of its own would stand in the
//! pool's way: with as many threads computing as there are cores it made steps slower.

use headstart_core::BlockId;
use headstart_core::transfer::DevicePart;
use headstart_scheduler::Copies;

use crate::kv::{LayerKv, Section, SectionOf};

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

/// Copies all layers.
pub(super) fn copy(layers: &mut [LayerKv], copies: &mut Copies<'_>) {
    let num_layers = layers.len();
    for (index, layer) in layers.iter_mut().enumerate() {
        copy_layer(copies, index, num_layers, layer);
    }
}

/// Copies a layer: one part, or two where its probes lie apart.
fn copy_layer(copies: &mut Copies<'_>, index: usize, num_layers: usize, layer: &mut LayerKv) {
    if !layer.has_probes() {
        return copies.copy(index, layer);
    }
    // Stored units have the probe parts of all layers first, then the rest parts.
    for (section, part) in [(Section::Probes, index), (Section::Rest, num_layers + index)] {
        copies.copy(part, &mut SectionOf { layer, section });
    }
}

/// Computes all layers in order, each behind its copies and beside those of the next one.
pub(super) fn compute(
    layers: &mut [LayerKv],
    copies: Option<Copies<'_>>,
    mut compute: impl FnMut(usize, &mut LayerKv) + Send,
) {
    let Some(mut copies) = copies else {
        let layers = layers.iter_mut().enumerate();
        return layers.for_each(|(index, layer)| compute(index, layer));
    };
    let num_layers = layers.len();
    // The first layer has no computation before it to be copied beside.
    if let Some(first) = layers.first_mut() {
        copy_layer(&mut copies, 0, num_layers, first);
    }
    for index in 0..num_layers {
        // Two borrows that cannot overlap: one layer to compute, the others to copy.
        let (ready, rest) = layers[index..].split_at_mut(1);
        let copy_next = || {
            if let Some(next) = rest.first_mut() {
                copy_layer(&mut copies, index + 1, num_layers, next);
            }
        };
        rayon::join(|| compute(index, &mut ready[0]), copy_next);
    }
}
