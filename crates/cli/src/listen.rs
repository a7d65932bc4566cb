//! The address to listen on, in the forms that people write.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use serde::Deserialize;

/// The host without another one: this machine alone.
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The port without another one.
const PORT: u16 = 8000;

/// An address from `HOST:PORT`, `:PORT`, `PORT` or `HOST`; a name is looked up.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct ListenAddress(pub(crate) SocketAddr);

impl Default for ListenAddress {
    fn default() -> Self {
        Self((HOST, PORT).into())
    }
}

impl ListenAddress {
    /// The address of `--host` and `--port`, if either is given.
    pub(crate) fn of(host: Option<IpAddr>, port: Option<u16>) -> Option<Self> {
        (host.is_some() || port.is_some())
            .then(|| Self((host.unwrap_or(HOST), port.unwrap_or(PORT)).into()))
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; write HOST:PORT, such as 127.0.0.1:8000 or :8000");
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self(address));
        }
        if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            return Ok(Self((HOST, port).into()));
        }
        if let Ok(host) = host(text) {
            return Ok(Self((host, PORT).into()));
        }
        let (name, port) = text
            .rsplit_once(':')
            .ok_or_else(|| wrong("there is no port"))?;
        let port = port
            .parse()
            .map_err(|_| wrong("the port is not a number up to 65535"))?;
        host(name).map(|host| Self((host, port).into()))
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// An IP address, or the one that a name stands for.
pub(crate) fn host(name: &str) -> Result<IpAddr, String> {
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Ok(address);
    }
    // Both addresses of this machine have this name; the older one is what clients try first.
    if name == "localhost" {
        return Ok(HOST);
    }
    let unknown = |why: String| format!("the host {name:?} is not known ({why})");
    let mut found = (name, 0)
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?;
    let first = found.next().map(|address| address.ip());
    first.ok_or_else(|| unknown("it has no address".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        match (text.parse::<ListenAddress>(), expected) {
            (Ok(ListenAddress(address)), Ok(expected)) => {
                assert_eq!(address.to_string(), expected, "{text}");
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            (got, expected) => panic!("{text}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn every_usual_form_is_taken() {
        check("127.0.0.1:9000", Ok("127.0.0.1:9000"));
        check("[::1]:9000", Ok("[::1]:9000"));
        check("localhost:9000", Ok("127.0.0.1:9000"));
        check(":9000", Ok("127.0.0.1:9000"));
        check("9000", Ok("127.0.0.1:9000"));
        check("0.0.0.0", Ok("0.0.0.0:8000"));
        check("localhost", Ok("127.0.0.1:8000"));
        check("localhost:99999", Err("up to 65535"));
        check("localhost:http", Err("write HOST:PORT"));
        check("no such host:80", Err("is not known"));
        check("", Err("there is no port"));
    }

    #[test]
    fn host_and_port_fill_each_other_in() {
        let of = |host: Option<&str>, port| {
            let host = host.map(|host| host.parse().expect("an address"));
            ListenAddress::of(host, port).map(|ListenAddress(address)| address.to_string())
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some("0.0.0.0"), None).as_deref(), Some("0.0.0.0:8000"));
        assert_eq!(of(None, Some(9)).as_deref(), Some("127.0.0.1:9"));
    }
}
