//! A fake OpenAI server on port 0 that sends exactly the scripted bytes.
//!
//! Written on a bare socket, because the tests are about where bytes are cut and how
//! connections end. Connections are kept alive, one request after another.

// Each test crate uses a part of this.
#![allow(dead_code)]

pub(crate) mod model;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Clone)]
pub(crate) struct Seen {
    /// Request line and header lines, lower case.
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// A scripted reply: each piece is one HTTP chunk, in a packet of its own.
pub(crate) struct Reply {
    pub(crate) status: &'static str,
    pub(crate) headers: Vec<String>,
    pub(crate) pieces: Vec<Vec<u8>>,
    pub(crate) end: End,
}

/// End of an answer.
#[derive(PartialEq)]
pub(crate) enum End {
    /// As HTTP says.
    Proper,
    /// The connection closes inside the body.
    Cut,
    /// Nothing more comes.
    Never,
}

impl Reply {
    pub(crate) fn ok(pieces: Vec<Vec<u8>>) -> Self {
        let headers = vec!["content-type: text/event-stream".to_owned()];
        let (status, end) = ("200 OK", End::Proper);
        Self { status, headers, pieces, end }
    }

    pub(crate) fn error(status: &'static str, body: &str) -> Self {
        let pieces = vec![body.as_bytes().to_vec()];
        Self { status, ..Self::ok(pieces) }
    }
}

/// A running server; it ends with its runtime.
pub(crate) struct Fake {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Mutex<usize>>,
}

impl Fake {
    /// Answers each request as `respond` says.
    pub(crate) async fn start(respond: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let fake = Self {
            url: format!("http://{address}"),
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let respond = Arc::new(respond);
        let (seen, connections) = (fake.seen.clone(), fake.connections.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                *connections.lock().unwrap() += 1;
                let (seen, respond) = (seen.clone(), respond.clone());
                tokio::spawn(async move {
                    // A client that went away ends the connection, not the test.
                    let _ = serve(socket, &seen, &*respond).await;
                });
            }
        });
        fake
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

async fn serve(
    socket: TcpStream,
    seen: &Mutex<Vec<Seen>>,
    respond: &(impl Fn(&Value) -> Reply + Send + Sync),
) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut socket = BufReader::new(socket);
    while let Some(request) = read_request(&mut socket).await? {
        let reply = respond(&request.body);
        seen.lock().unwrap().push(request);
        let mut head = format!("HTTP/1.1 {}\r\ntransfer-encoding: chunked\r\n", reply.status);
        for header in &reply.headers {
            head.push_str(&format!("{header}\r\n"));
        }
        socket.write_all(format!("{head}\r\n").as_bytes()).await?;
        for piece in &reply.pieces {
            socket.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
            socket.write_all(piece).await?;
            socket.write_all(b"\r\n").await?;
            socket.flush().await?;
            tokio::task::yield_now().await;
        }
        match reply.end {
            End::Proper => socket.write_all(b"0\r\n\r\n").await?,
            End::Cut => return Ok(()),
            End::Never => std::future::pending().await,
        }
    }
    Ok(())
}

async fn read_request(socket: &mut BufReader<TcpStream>) -> std::io::Result<Option<Seen>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    let head = head.to_lowercase();
    let length = head.split("content-length: ").nth(1).expect("a length");
    let length = length.lines().next().expect("a line").parse().expect("a number");
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await?;
    let body = serde_json::from_slice(&body).expect("a JSON body");
    Ok(Some(Seen { head, body }))
}

/// The events of an answer: role, one per word, finish, usage, end.
pub(crate) fn events(text: &str, prompt_tokens: usize, cached_tokens: usize) -> Vec<Vec<u8>> {
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}], "usage": null});
    let mut chunks = vec![delta(json!({"role": "assistant", "content": ""}))];
    chunks.extend(text.split_inclusive(' ').map(|word| delta(json!({"content": word}))));
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
    chunks.push(json!({"choices": [], "usage": {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": text.split_whitespace().count(),
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }}));
    let payloads = chunks.iter().map(Value::to_string).chain(["[DONE]".to_owned()]);
    payloads.map(|payload| format!("data: {payload}\n\n").into_bytes()).collect()
}
