//! The integration tests of this crate: one binary, because each one costs time to link.

mod attention;
mod checkpoint;
mod constructed;
mod copies;
mod equality;
mod export;
mod importance;
mod lossy;
mod reference;
mod transformers;
