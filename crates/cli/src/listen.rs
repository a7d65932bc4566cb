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
        // A full address comes first: its port is in the text, and IPv6 has colons of its own.
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self(address));
        }
        if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            return Ok(Self((HOST, port).into()));
        }
        // An IPv6 address without brackets has colons that separate no port.
        let is_address = text.parse::<IpAddr>().is_ok();
        let (name, port) = match text.rsplit_once(':') {
            Some((name, number)) if !is_address => (name, port(number)?),
            _ => (text, PORT),
        };
        Ok(Self((host(name)?, port).into()))
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
    // Brackets belong to the address in a URL, and the parser refuses them.
    if let Ok(address) = name.trim_matches(['[', ']']).parse() {
        return Ok(address);
    }
    // Both addresses of this machine have this name; the older one is what clients try first.
    if name == "localhost" {
        return Ok(HOST);
    }
    let wrong = |why: &str| format!("{why}; write HOST:PORT, :PORT or PORT, without http://");
    // These characters are of URLs and patterns, so the message names the right forms.
    if name.is_empty() || name.contains([':', '/', '*', ' ']) {
        let why = "a host is a name or an IP address, 0.0.0.0 for all of this machine";
        return Err(wrong(why));
    }
    let found = (name, 0).to_socket_addrs();
    // A name with several addresses gives the first: the server binds to one.
    let first = found.ok().and_then(|mut found| found.next());
    let first = first.map(|address| address.ip());
    first.ok_or_else(|| wrong(&format!("the host {name:?} is not known")))
}

/// A port; 0 is a free one.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    let wrong = |_| format!("{text:?} is not a port (0 to 65535)");
    text.parse().map_err(wrong)
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
        check("::1", Ok("[::1]:8000"));
        check("localhost:99999", Err("0 to 65535"));
        check("localhost:http", Err("is not a port"));
        check("no.such.host.invalid:80", Err("is not known"));
        check("http://127.0.0.1:80", Err("without http://"));
        check("*:80", Err("0.0.0.0"));
        check("", Err("write HOST:PORT"));
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
