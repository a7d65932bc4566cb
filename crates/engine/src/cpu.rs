//! CPU kernels. Each picks its instructions at run time (AVX-512, AVX2 or portable, through
//! `pulp`), so that one binary serves every machine; the pool is rayon's global one, which all
//! replicas of a process share.
//!
//! Every kernel has a plain twin in its tests.

pub mod attention;
pub mod head;
pub mod linear;
pub mod ops;
mod strip;
