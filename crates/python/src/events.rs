//! Payloads of engines' KV events as dicts.

use headstart_core::event::{Attention, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent};
use headstart_kv_events::{DecodeError, SkippedEvent, decode_and_tell};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The exception for a payload of which nothing can be used.
pub(crate) fn unreadable(error: &DecodeError) -> PyErr {
    PyValueError::new_err(format!("no batch of KV events: {error}"))
}

/// The events of a payload: the last frame of a message of vLLM's or SGLang's event publisher.
///
/// An event is a dict, whose `type` is `BlockStored`, `BlockRemoved` or `AllBlocksCleared`. Its
/// other keys have the names of vLLM's map form, but for these: `medium` is `device`, `host`,
/// `disk` or `remote`; `group_idx` is 0 where the engine names none; `attention` is `full`,
/// `window` or `state`, and `window` its tokens; `lookahead` is the number of tokens behind a block
/// that its hash covers too; `extra` is `None`, or one item for each block: the bytes that set it
/// apart, such as an image. Hashes are the low 128 bits. `token_ids` may be empty.
///
/// An event that was left out has the type `Skipped`, a `reason`, and says whether it
/// `may_have_removed` blocks.
///
/// >>> from headstart import decode_events
/// >>> decode_events(b"\x92\x01\x91\x91\xb0AllBlocksCleared")
/// [{'type': 'AllBlocksCleared'}]
///
/// Raises `ValueError` for bytes that are no batch of events.
#[pyfunction]
pub(crate) fn decode_events<'py>(
    py: Python<'py>,
    payload: &[u8],
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let mut skipped = Vec::new();
    let batch = decode_and_tell(payload, &mut |event| skipped.push(event));
    let batch = batch.map_err(|error| unreadable(&error))?;
    let mut events = batch.events.iter();
    let mut skipped = skipped.iter().peekable();
    let mut all = Vec::new();
    loop {
        // The place of a skipped event counts all events before it.
        if let Some(left_out) = skipped.next_if(|event| event.index == all.len()) {
            all.push(skipped_dict(py, left_out)?);
        } else if let Some(event) = events.next() {
            all.push(event_dict(py, event)?);
        } else {
            return Ok(all);
        }
    }
}

fn skipped_dict<'py>(py: Python<'py>, event: &SkippedEvent) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("type", "Skipped")?;
    dict.set_item("reason", event.reason.label())?;
    dict.set_item("message", event.reason.to_string())?;
    dict.set_item("may_have_removed", event.may_have_removed)?;
    Ok(dict)
}

fn event_dict<'py>(py: Python<'py>, event: &CacheEvent) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    match event {
        CacheEvent::Stored(stored) => {
            dict.set_item("type", "BlockStored")?;
            fill_stored(&dict, stored)?;
        }
        CacheEvent::Removed { blocks, tier, group } => {
            dict.set_item("type", "BlockRemoved")?;
            dict.set_item("block_hashes", numbers(blocks))?;
            dict.set_item("medium", tier.name())?;
            dict.set_item("group_idx", group)?;
        }
        CacheEvent::Cleared => dict.set_item("type", "AllBlocksCleared")?,
    }
    Ok(dict)
}

fn fill_stored(dict: &Bound<'_, PyDict>, stored: &StoredBlocks) -> PyResult<()> {
    let (attention, window) = match stored.group.attention {
        Attention::Full => ("full", None),
        Attention::Window { tokens } => ("window", Some(tokens)),
        Attention::State => ("state", None),
    };
    dict.set_item("block_hashes", numbers(&stored.blocks))?;
    dict.set_item("parent_block_hash", stored.parent.as_ref().map(number))?;
    dict.set_item("token_ids", &stored.tokens)?;
    dict.set_item("block_size", stored.block_size)?;
    dict.set_item("medium", stored.tier.name())?;
    dict.set_item("lora_name", stored.adapter.as_deref())?;
    dict.set_item("cache_salt", stored.salt.as_deref())?;
    dict.set_item("group_idx", stored.group.index)?;
    dict.set_item("attention", attention)?;
    dict.set_item("window", window)?;
    dict.set_item("lookahead", stored.group.lookahead)?;
    let py = dict.py();
    let extra = |extra: &Option<std::sync::Arc<[u8]>>| {
        extra.as_deref().map(|bytes| PyBytes::new(py, bytes))
    };
    let extras: Vec<_> = stored.extras.iter().map(extra).collect();
    dict.set_item("extra", (!extras.is_empty()).then_some(extras))
}

fn number(hash: &BlockHash) -> u128 {
    u128::from_be_bytes(hash.0)
}

fn numbers(hashes: &[BlockHash]) -> Vec<u128> {
    hashes.iter().map(number).collect()
}
