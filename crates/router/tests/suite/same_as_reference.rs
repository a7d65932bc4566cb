//! The index in production gives the answers of the one without hashes, and both obey the
//! contract.

use headstart_dst::index::{ReferenceIndex, conformance};
use headstart_router::RunIndex;
use headstart_router::index::{Empty, Limits};

#[test]
fn production_and_reference_agree() {
    conformance::same_overlaps(
        || {
            // The reference forgets no handle.
            let min_departed = usize::MAX;
            RunIndex::with_limits("m", Limits { min_departed, ..Limits::default() })
        },
        |index| {
            index.check();
        },
        || Box::new(ReferenceIndex::new("m")),
    );
}

#[test]
fn all_indexes_conform() {
    conformance::index(|| Box::new(RunIndex::new("m")));
    conformance::index(|| Box::new(RunIndex::alone("m")));
    conformance::index(|| Box::new(ReferenceIndex::new("m")));
    conformance::index(|| Box::new(Empty));
}
