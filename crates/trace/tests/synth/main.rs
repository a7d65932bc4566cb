//! Guarantees of generated traces: structure always, figures within a stated tolerance.

mod atc25;
mod measure;
mod runs;
mod streams;
