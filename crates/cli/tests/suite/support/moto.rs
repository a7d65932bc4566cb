//! An S3-compatible server, `moto_server`, and a way to it that can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::eventually;

const PROGRAM: &str = "moto_server";

/// Says who asks; this server believes it.
const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=headstart/20260101/us-east-1/s3/\
                             aws4_request, SignedHeaders=host, Signature=0";

/// A server with an empty bucket called `bucket`; killed when dropped.
pub struct Moto {
    child: Child,
    pub port: u16,
}

impl Moto {
    /// Nothing, said aloud, where it is not installed.
    pub fn start() -> Option<Self> {
        let program = program()?;
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let server = Self { child, port };
        eventually("a server that listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        server.make_bucket();
        Some(server)
    }

    fn make_bucket(&self) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let request = format!(
            "PUT /bucket HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\n\
             Connection: close\r\nAuthorization: {AUTHORIZATION}\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server's program: as the environment says, on the path, or where `cargo x check --services`
/// installs it.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("HEADSTART_MOTO").map(PathBuf::from);
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/services/moto");
    let installed = target.join("bin").join(PROGRAM);
    let runs = |program: &PathBuf| {
        let mut help = Command::new(program);
        help.arg("--help").stdout(Stdio::null()).stderr(Stdio::null());
        help.status().is_ok_and(|status| status.success())
    };
    let candidates = [named, Some(PROGRAM.into()), Some(installed)];
    let found = candidates.into_iter().flatten().find(runs);
    if found.is_none() {
        let is_wanted = std::env::var_os("HEADSTART_SERVICES").is_some_and(|value| value == "1");
        assert!(!is_wanted, "{PROGRAM} is not installed");
        super::skipped("moto_server is not installed; `cargo x check --services` installs it");
    }
    found
}

/// A way to a port of this machine. Cut, it closes what is open and whatever is opened.
pub struct Way {
    pub port: u16,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let way = Self {
            port: listener.local_addr().expect("an address").port(),
            is_cut: Arc::default(),
            open: Arc::default(),
        };
        let (is_cut, open) = (way.is_cut.clone(), way.open.clone());
        // Ends with the process that tests.
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let mut open = open.lock().expect("nobody panics");
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
                    let (mut from, mut to) = (copy(from), copy(to));
                    open.push(copy(&from));
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        way
    }

    pub fn cut(&self) {
        let mut open = self.open.lock().expect("nobody panics");
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}
