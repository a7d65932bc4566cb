//! Where the data-parallel ranks of one engine publish.
//!
//! Source: vLLM `distributed/kv_events.py`: rank r binds the configured TCP port plus r, or the
//! `inproc` name with `_dp` and r behind it; the replay socket likewise.

/// An address that ranks cannot share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{endpoint} has no address for rank {rank}: {problem}")]
pub struct RankError {
    endpoint: String,
    rank: u32,
    problem: &'static str,
}

/// The address of `rank`, where `endpoint` is that of rank 0.
///
/// # Errors
/// When the address has no port to count from, or too high a one.
pub fn endpoint_of_rank(endpoint: &str, rank: u32) -> Result<String, RankError> {
    let error = |problem| RankError {
        endpoint: endpoint.to_owned(),
        rank,
        problem,
    };
    if rank == 0 {
        return Ok(endpoint.to_owned());
    }
    if endpoint.starts_with("inproc://") {
        return Ok(format!("{endpoint}_dp{rank}"));
    }
    let Some(address) = endpoint.strip_prefix("tcp://") else {
        return Err(error("ranks need tcp:// and a port each"));
    };
    let (host, port) = address.rsplit_once(':').ok_or(error("it names no port"))?;
    let port: u16 = port
        .parse()
        .map_err(|_| error("its port is no number up to 65535"))?;
    let shifted = u16::try_from(rank)
        .ok()
        .and_then(|rank| port.checked_add(rank));
    let port = shifted.ok_or(error("the port would be above 65535"))?;
    Ok(format!("tcp://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_ports_upwards() {
        for (endpoint, rank, expected) in [
            ("tcp://10.0.0.7:5557", 0, Some("tcp://10.0.0.7:5557")),
            ("tcp://10.0.0.7:5557", 3, Some("tcp://10.0.0.7:5560")),
            ("tcp://*:5557", 1, Some("tcp://*:5558")),
            ("tcp://[::1]:5557", 1, Some("tcp://[::1]:5558")),
            ("inproc://events", 2, Some("inproc://events_dp2")),
            ("ipc:///run/events", 0, Some("ipc:///run/events")),
            ("ipc:///run/events", 1, None),
            ("tcp://host", 1, None),
            ("tcp://host:port", 1, None),
            ("tcp://host:65535", 1, None),
            ("tcp://host:1", 70_000, None),
        ] {
            let shifted = endpoint_of_rank(endpoint, rank).ok();
            assert_eq!(shifted.as_deref(), expected, "{endpoint} {rank}");
        }
    }
}
