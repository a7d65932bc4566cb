//! A shared index over a real server: whatever happens, every gateway answers as the reference
//! does, or knows that it may be wrong.
//!
//! The tests start `redis-server` or `valkey-server` on a free port, in a folder of their own.
//! Without either they say that they were skipped; with `HEADSTART_SERVICES=1`, as `cargo x check
//! --services` sets it, they fail instead.

mod faults;
mod fleet;
mod gateway;
mod gateways;
mod hostile;
mod proxy;
mod service;
mod worlds;
