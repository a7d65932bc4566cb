//! Slow or rival structures that the tests compare the production ones with.

mod radix;
mod sorted_list;

pub use radix::RadixCache;
pub use sorted_list::SortedListLru;
