//! The mistakes, as clients really make them: each file has those of one cause.
//!
//! Sources:
//!
//! - Claude Code's billing header: vLLM #36829, vllm-mlx #277;
//! - times in system prompts: nanobot #226, anything-llm #6398, private-gpt #2271, opencode #32622;
//! - tools in the order of connection: openclaw #58037, oh-my-pi #890, librefang #3765;
//! - keys from hash maps: FlowDown #273, swift-ai-sdk #39, sglang #34553;
//! - thinking that templates keep for the last turn only: Qwen #131, Rapid-MLX #3464, omlx #3268.
//!
//! Seams are not here: they need token ids, and these logs hold texts.

mod clock;
mod document_order;
mod json_keys;
mod nonce;
mod template;
mod thinking;
mod tool_order;
mod trimmed;
mod white_space;

use crate::defect::Defect;

/// The defects of a cause.
pub(crate) fn defects(cause: &str) -> Vec<Defect> {
    match cause {
        "clock" => clock::defects(),
        "nonce" => nonce::defects(),
        "tool-order" => tool_order::defects(),
        "json-keys" => json_keys::defects(),
        "white-space" => white_space::defects(),
        "thinking" => thinking::defects(),
        "document-order" => document_order::defects(),
        "template" => template::defects(),
        "trimmed" => trimmed::defects(),
        other => panic!("no defects for {other}"),
    }
}
