//! Event addresses of the data-parallel ranks of one engine. Listen addresses from an engine's own
//! configuration look alike and are rejected.
//!
//! Source: vLLM `distributed/kv_events.py`: rank r binds the configured TCP port plus r; the
//! replay socket likewise.

/// An address that events cannot come from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// It cannot be connected to.
    #[error("`{endpoint}` is not tcp://HOST:PORT of a publisher: {problem}")]
    NoAddress {
        /// The given address.
        endpoint: String,
        /// The problem and the suggested fix.
        problem: &'static str,
    },
    /// It leaves no port for a rank.
    #[error(
        "{endpoint} has no address for rank {rank}: the port would be above 65535; give the \
         address of rank 0, with room for all ranks above it"
    )]
    NoPort {
        /// The given address of rank 0.
        endpoint: String,
        /// The rank.
        rank: u32,
    },
}

/// The address of `rank`, where `endpoint` is that of rank 0.
///
/// # Errors
/// When it is no address to connect to, or its port is too high.
pub fn endpoint_of_rank(endpoint: &str, rank: u32) -> Result<String, RankError> {
    let (host, port) = parts(endpoint)?;
    // A shift past 65535 must not wrap around to another service's port.
    let shifted = u16::try_from(rank).ok().and_then(|rank| port.checked_add(rank));
    let port = shifted.ok_or_else(|| RankError::NoPort { endpoint: endpoint.to_owned(), rank })?;
    Ok(format!("tcp://{host}:{port}"))
}

/// Host and port.
fn parts(endpoint: &str) -> Result<(&str, u16), RankError> {
    let error = |problem| RankError::NoAddress { endpoint: endpoint.to_owned(), problem };
    let address = endpoint.strip_prefix("tcp://");
    let address = address.ok_or(error("it must begin with tcp://"))?;
    // From the right: an IPv6 host has colons of its own.
    let (host, port) = address.rsplit_once(':').ok_or(error("it names no port"))?;
    let port = port.parse();
    match (host, port.map_err(|_| error("its port is no number up to 65535"))?) {
        ("", _) => Err(error("it names no host")),
        ("*", _) => Err(error(
            "`*` is what the engine listens on; write the engine's host or IP address in its \
             place, such as tcp://10.0.0.7:5557",
        )),
        (_, 0) => Err(error(
            "port 0 is not a port; write the one that the engine publishes on, such as 5557",
        )),
        (host, port) => Ok((host, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_ports_upwards() {
        for (endpoint, rank, expected) in [
            ("tcp://10.0.0.7:5557", 0, Some("tcp://10.0.0.7:5557")),
            ("tcp://10.0.0.7:5557", 3, Some("tcp://10.0.0.7:5560")),
            ("tcp://[::1]:5557", 1, Some("tcp://[::1]:5558")),
            ("inproc://events", 2, None),
            ("ipc:///run/events", 0, None),
            ("tcp://host", 1, None),
            ("tcp://host:port", 1, None),
            ("tcp://host:65535", 1, None),
            ("tcp://host:1", 70_000, None),
        ] {
            let shifted = endpoint_of_rank(endpoint, rank).ok();
            assert_eq!(shifted.as_deref(), expected, "{endpoint} {rank}");
        }
    }

    #[test]
    fn what_an_engine_listens_on_is_no_address_and_the_error_says_what_to_write() {
        for (endpoint, part) in [
            ("tcp://*:5557", "in its place, such as tcp://10.0.0.7:5557"),
            ("tcp://127.0.0.1:0", "such as 5557"),
            ("tcp://:5557", "no host"),
            ("tcp://host", "no port"),
            ("tcp://host:70000", "up to 65535"),
            ("10.0.0.7:5557", "tcp://"),
        ] {
            for rank in 0..2 {
                let error = endpoint_of_rank(endpoint, rank).expect_err(endpoint);
                let error = error.to_string();
                assert!(error.contains(part) && error.contains(endpoint), "{error}");
            }
        }
        // All addresses of this machine can be connected to.
        assert!(endpoint_of_rank("tcp://0.0.0.0:5557", 1).is_ok());
    }
}
