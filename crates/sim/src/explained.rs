//! Explanation of every simulated prompt token, by the code that explains live traffic.
//!
//! | module | holds |
//! |---|---|
//! | [`replay`] | [`replay::Explained`]: a trace over replicas with real prefix caches |
//! | [`runs`] | [`runs::ExplainedRuns`]: the same of block ids under LRU, by runs |
//! | [`world`] | [`world::World`]: a fleet whose engines' true state is known |
//! | [`author`] | who writes the world's prompts, and knows which tokens were copied from where |
//! | [`engine`] | one replica of the world: a real prefix cache, and a lower tier that may fail |
//! | [`oracle`] | what the truth is, with unbounded memory and without the attributor |
//! | [`verdicts`] | [`verdicts::Verdicts`]: what tokens were, against what was said of them |

pub mod author;
pub mod engine;
pub mod oracle;
pub mod replay;
pub mod runs;
pub mod verdicts;
pub mod world;
