//! What caches of other sizes would have hit.
