//! A publisher of frames that are made by hand.

use std::net::TcpListener;

use bytes::Bytes;
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

/// Returns an address without a listener, for a moment at least.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("tcp://{}", listener.local_addr().expect("bound"))
}

pub(crate) async fn bound(socket: &mut impl Socket) -> String {
    let endpoint = socket.bind("tcp://127.0.0.1:0").await;
    endpoint.expect("bound").to_string()
}

/// Sends batch `seq` with this payload.
pub(crate) async fn send(live: &mut PubSocket, seq: u64, payload: impl Into<Bytes>) {
    let seq = Bytes::copy_from_slice(&seq.to_be_bytes());
    let frames = vec![Bytes::new(), seq, payload.into()];
    let message = ZmqMessage::try_from(frames).expect("frames");
    live.send(message).await.expect("sent");
    tokio::task::yield_now().await;
}

/// A batch of events of a made-up type.
pub(crate) fn of_type(name: &str) -> Vec<u8> {
    let name = [&[0xd9, name.len() as u8][..], name.as_bytes()].concat();
    let event = [&[0x92][..], &name, &[0xc0]].concat();
    [&[0x92, 0xc0, 0x92][..], &event, &event].concat()
}
