//! A way to the server that can be blocked: for one gateway and not for others.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;

/// Traffic that the proxy lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    Open,
    /// Connections stand, and nothing comes through.
    Blocked,
    /// The same for those who read logs.
    ReadersBlocked,
}

pub(crate) struct Proxy {
    port: u16,
    way: Arc<AtomicU8>,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let proxy = Self {
            port: listener.local_addr().expect("an address").port(),
            way: Arc::new(AtomicU8::new(Way::Open as u8)),
            is_over: Arc::default(),
        };
        let (way, is_over) = (proxy.way.clone(), proxy.is_over.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Relaxed) {
                    return;
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                    join(&client, &server, &way, &is_over);
                }
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.store(way as u8, Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // So that it looks.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn join(client: &TcpStream, server: &TcpStream, way: &Arc<AtomicU8>, is_over: &Arc<AtomicBool>) {
    let reads_logs = Arc::new(AtomicBool::new(false));
    for (from, to) in [(client, server), (server, client)] {
        let _ = from.set_nodelay(true);
        let pump = Pump {
            from: from.try_clone().expect("a socket"),
            to: to.try_clone().expect("a socket"),
            way: way.clone(),
            is_over: is_over.clone(),
            reads_logs: reads_logs.clone(),
        };
        std::thread::spawn(move || pump.run());
    }
}

struct Pump {
    from: TcpStream,
    to: TcpStream,
    way: Arc<AtomicU8>,
    is_over: Arc<AtomicBool>,
    reads_logs: Arc<AtomicBool>,
}

impl Pump {
    fn run(mut self) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(number @ 1..) = self.from.read(&mut bytes) {
            let asks = |word: &[u8]| bytes[..number].windows(word.len()).any(|w| w == word);
            if asks(b"XREAD") {
                self.reads_logs.store(true, Relaxed);
            }
            while self.is_blocked() && !self.is_over.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if self.to.write_all(&bytes[..number]).is_err() {
                break;
            }
        }
        let _ = self.from.shutdown(Shutdown::Both);
        let _ = self.to.shutdown(Shutdown::Both);
    }

    fn is_blocked(&self) -> bool {
        let way = self.way.load(Relaxed);
        let reads_logs = self.reads_logs.load(Relaxed);
        way == Way::Blocked as u8 || (way == Way::ReadersBlocked as u8 && reads_logs)
    }
}
