//! Finds out why a connection to a publisher could not be made.
//!
//! The ZeroMQ library retries a refused connection until its time is up, and then reports only
//! that. So a plain connection, closed at once, finds out whether the host has no address, no
//! process listens, or none answers.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use zeromq::ZmqError;

use super::cause::SocketProblem;

/// Longest time for a name to be resolved, and for an answer to the plain attempt: with ZeroMQ's
/// before it they take no longer than a replay may be silent.
const PROBE_TIME_MAX: Duration = Duration::from_millis(500);

/// The library's error if the peer's socket type does not match, such as a router's.
const INCOMPATIBLE: &str = "Provided sockets combination is not compatible";

/// Why `endpoint` could not be connected to, of which ZeroMQ says `error`. Takes at most twice
/// [`PROBE_TIME_MAX`].
pub(super) async fn cause_of(error: &ZmqError, endpoint: &str) -> SocketProblem {
    match error {
        ZmqError::Network(_) | ZmqError::ConnectTimeout(_) => plainly(endpoint).await,
        ZmqError::Other(INCOMPATIBLE) => SocketProblem::OtherSocket,
        // An invalid greeting, or no greeting.
        ZmqError::Codec(_) | ZmqError::Other(_) => SocketProblem::NotZeroMq,
        other => SocketProblem::Broken(other.to_string()),
    }
}

async fn plainly(endpoint: &str) -> SocketProblem {
    // Resolved apart from the connection: a wrong name and a closed port need different fixes.
    let address = endpoint.trim_start_matches("tcp://");
    let addresses: Vec<SocketAddr> = match timeout(PROBE_TIME_MAX, lookup_host(address)).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    if addresses.is_empty() {
        return SocketProblem::Unresolved;
    }
    match timeout(PROBE_TIME_MAX, TcpStream::connect(&addresses[..])).await {
        // It listens, and no greeting came.
        Ok(Ok(_)) => SocketProblem::Mute,
        Ok(Err(error)) => match error.kind() {
            ErrorKind::ConnectionRefused => SocketProblem::Refused,
            ErrorKind::TimedOut => SocketProblem::NoAnswer,
            _ => SocketProblem::Unreachable(error.to_string()),
        },
        Err(_) => SocketProblem::NoAnswer,
    }
}
