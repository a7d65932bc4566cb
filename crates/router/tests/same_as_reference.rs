//! The index in production gives the answers of the one without hashes, and both obey the
//! contract.

use headstart_router::index::{Empty, ReferenceIndex};
use headstart_router::{MapIndex, conformance};

#[test]
fn map_and_reference_agree() {
    conformance::same_overlaps(
        || MapIndex::new("m"),
        |index| {
            index.check();
        },
        || Box::new(ReferenceIndex::default()),
    );
}

#[test]
fn all_indexes_conform() {
    conformance::index(|| Box::new(MapIndex::new("m")));
    conformance::index(|| Box::new(ReferenceIndex::default()));
    conformance::index(|| Box::new(Empty));
}
