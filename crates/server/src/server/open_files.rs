//! Limit of connections: each is an open file, and its request opens another one to an upstream.
//! Without free files the server can neither accept, nor check health, nor save.
//!
//! Services are usually started with a low soft limit (1,024) and a high hard one, because of
//! programs that call `select`. This program does not, so it raises the soft limit to the hard one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::gateway::HttpGateway;
use crate::upstream::IDLE_CONNECTIONS;

/// Open files besides connections: standard streams, the runtime's, listeners, saved files, and
/// some slack.
const RESERVED: u64 = 64;

/// Open files per replica besides the requests': idle connections, event and replay sockets, a
/// health check, a comparison of tokens.
const RESERVED_PER_REPLICA: u64 = IDLE_CONNECTIONS as u64 + 8;

/// Open files that one client's connection may need: its own and one to an upstream.
const PER_CONNECTION: u64 = 2;

/// Default limit of connections: an idle one costs some KiB.
const CONNECTIONS_USUAL: usize = 16_384;

/// Connections below which a gateway without a configured limit warns: clients keep some open each.
const CONNECTIONS_FEW: usize = 1024;

/// Connections that are allowed whatever the limits say: a server of none is of no use.
const CONNECTIONS_MIN: usize = 16;

/// Raises the soft limit of open files to the hard one. Returns the limit; `None` if unlimited.
pub(super) fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files cannot be raised");
            current
        }
    }
}

/// Returns the most connections at once of a gateway that may have `open_files` open files.
pub(super) fn connections(gateway: &HttpGateway, open_files: Option<u64>) -> usize {
    let wanted = gateway.limits.connections;
    let replicas = gateway.fleet.replicas().count() + gateway.fleet.upstreams().len();
    let allowed = allowed(replicas as u64, open_files);
    if allowed < wanted.unwrap_or(CONNECTIONS_FEW) {
        tracing::warn!(
            open_files,
            "the limit of open files allows {allowed} connections only; raise its hard limit \
             (`ulimit -Hn`, LimitNOFILE= of systemd), or say --max-connections {allowed}"
        );
    }
    wanted.unwrap_or(CONNECTIONS_USUAL).min(allowed)
}

fn allowed(replicas: u64, open_files: Option<u64>) -> usize {
    let Some(open_files) = open_files else {
        return usize::MAX;
    };
    let reserved = replicas.saturating_mul(RESERVED_PER_REPLICA).saturating_add(RESERVED);
    let connections = open_files.saturating_sub(reserved) / PER_CONNECTION;
    usize::try_from(connections).unwrap_or(usize::MAX).max(CONNECTIONS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(replicas: u64, open_files: Option<u64>, expected: usize) {
        assert_eq!(allowed(replicas, open_files), expected);
    }

    #[test]
    fn connections_leave_files_for_everything_else() {
        check(1, None, usize::MAX);
        check(0, Some(1064), 500);
        check(4, Some(1024), (1024 - 64 - 4 * 72) / 2);
        // However little there is.
        check(4, Some(100), CONNECTIONS_MIN);
        check(u64::MAX, Some(100), CONNECTIONS_MIN);
    }

    #[test]
    fn the_soft_limit_is_the_hard_one_afterwards() {
        let raised = raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!((limit.current, limit.maximum), (raised, raised));
    }
}
