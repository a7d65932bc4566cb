//! Workloads to replay: requests whose prompts are chains of numbered blocks.
//!
//! A fleet of thousands has too little to do in one trace, so a workload may be played several
//! times at once: copy c of a request has the ids of the trace moved by c times 2^40. Copies share
//! nothing with one another, like the tenants of one service.

mod chat;

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use headstart_core::{BlockRuns, Run, TraceRequest};
use headstart_trace::Reader;

use crate::options::Source;

/// Ids of two copies differ by at least this much.
const COPY_STRIDE: u64 = 1 << 40;

/// Requests in order of arrival.
#[derive(Debug)]
pub(crate) struct Workload {
    /// As tables have it.
    pub(crate) name: &'static str,
    /// Tokens that one id stands for.
    pub(crate) id_tokens: u32,
    /// The requests, in order of arrival.
    pub(crate) requests: Vec<TraceRequest>,
    /// Tokens of all different blocks: what a fleet stores at least of one copy.
    pub(crate) distinct_tokens: u64,
}

impl Workload {
    /// Reads or makes it; none where its file is not there.
    pub(crate) fn open(source: Source, data: &Path, seed: u64) -> Result<Option<Self>> {
        let (id_tokens, requests) = match source {
            Source::Chat => (chat::ID_TOKENS, chat::requests(seed)),
            Source::Conversation | Source::Synthetic => {
                let path = data.join(format!("{}_trace.jsonl.zst", source.name()));
                if !path.exists() {
                    return Ok(None);
                }
                read(&path).with_context(|| format!("{} cannot be replayed", path.display()))?
            }
        };
        let ids = requests.iter().flat_map(|request| request.blocks.iter());
        let distinct = ids.collect::<std::collections::HashSet<_>>().len() as u64;
        Ok(Some(Self {
            name: source.name(),
            id_tokens,
            requests,
            distinct_tokens: distinct * u64::from(id_tokens),
        }))
    }

    /// Copy `copy` of request `index`.
    pub(crate) fn request(&self, index: usize, copy: u64) -> TraceRequest {
        let mut request = self.requests[index].clone();
        let mut moved = BlockRuns::default();
        for &Run { start, count } in request.blocks.runs() {
            let start = start + copy * COPY_STRIDE;
            moved.push_run(Run { start, count });
        }
        request.blocks = moved;
        request
    }
}

fn read(path: &Path) -> Result<(u32, Vec<TraceRequest>)> {
    let file = File::open(path).context("it cannot be opened")?;
    let mut reader = Reader::new(path.display().to_string(), file)?;
    let requests = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((reader.info().block_tokens, requests))
}
