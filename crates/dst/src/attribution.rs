//! The live attribution of cache misses, against the truth of a simulated fleet.
//!
//! | module | holds |
//! |---|---|
//! | [`world`] | [`world::World`]: a fleet whose engines' true state is known |
//! | [`author`] | writes the world's prompts, and knows the source of each copied token |
//! | [`engine`] | one replica of the world: a real prefix cache, and a lower tier that may fail |
//! | [`oracle`] | the truth, with unbounded memory and without the attributor |
//! | [`verdicts`] | [`verdicts::Verdicts`]: true buckets of tokens, against the attributed ones |

pub mod author;
pub mod engine;
pub mod oracle;
pub mod verdicts;
pub mod world;
