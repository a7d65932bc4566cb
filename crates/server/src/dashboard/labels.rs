//! Names of prefixes, in place of hashes: `serve --label-prefix NAME=FILE`.
//!
//! A text is tokenized twice, as the system prompt of a chat and as the start of a plain prompt.
//! Route keys follow once block sizes are known. Prompts with a salt have other keys and no label.

use std::collections::BTreeMap;

use headstart_core::{Nanos, ReplicaId, RouteKey, TokenId};
use headstart_index_sync::clock::unix_seconds;
use headstart_prompt::{GenerationPrompt, PromptModel, RenderInput, SpecialTokensIn};
use headstart_router::index::Overlaps;
use headstart_router::{PrefixIndex, Prompt, PromptKeys};
use serde_json::{Map, json};

use super::tree::PrefixTree;
use crate::config::PrefixLabel;

/// The labels of a gateway.
#[derive(Debug, Default)]
pub struct PrefixLabels(Vec<TokenizedLabel>);

#[derive(Debug)]
struct TokenizedLabel {
    name: String,
    /// The text's tokens, as different prompts begin with them.
    forms: Vec<Vec<TokenId>>,
}

/// A label and the replicas that hold its prefix.
#[derive(Debug)]
pub struct LabelResidency<'a> {
    /// Its name.
    pub name: &'a str,
    /// Leading tokens that a replica holds, in whatever tier.
    pub held: BTreeMap<ReplicaId, u32>,
}

impl PrefixLabels {
    /// Tokenizes the texts of `labels` as `model` does.
    #[must_use]
    pub fn new(labels: &[PrefixLabel], model: &PromptModel) -> Self {
        let label = |prefix: &PrefixLabel| TokenizedLabel {
            name: prefix.name.clone(),
            forms: [chat(&prefix.text, model), plain(&prefix.text, model)]
                .into_iter()
                .flatten()
                .collect(),
        };
        Self(labels.iter().map(label).collect())
    }

    /// Returns the names of branches of `tree`, by their first key.
    pub(super) fn of_branches(
        &self,
        tree: &PrefixTree,
        index: &dyn PrefixIndex,
    ) -> BTreeMap<RouteKey, &str> {
        let mut names = BTreeMap::new();
        for label in &self.0 {
            for keys in label.keys(index) {
                let chain = keys.chains().first();
                let branch = chain.and_then(|chain| tree.branch_of(&chain.keys));
                names.extend(branch.map(|key| (key, label.name.as_str())));
            }
        }
        names
    }

    /// Returns the holders of each label's prefix.
    #[must_use]
    pub fn held(&self, index: &dyn PrefixIndex, now: Nanos) -> Vec<LabelResidency<'_>> {
        let mut overlaps = Overlaps::default();
        let mut all = Vec::with_capacity(self.0.len());
        for label in &self.0 {
            let mut held = BTreeMap::new();
            for keys in label.keys(index) {
                index.overlaps(&keys, now, &mut overlaps);
                for overlap in overlaps.iter().filter(|holder| holder.any_tier_tokens > 0) {
                    // A label has two forms. The one of which more is held counts.
                    let most: &mut u32 = held.entry(overlap.replica).or_default();
                    *most = overlap.any_tier_tokens.max(*most);
                }
            }
            all.push(LabelResidency { name: &label.name, held });
        }
        all
    }
}

impl TokenizedLabel {
    fn keys(&self, index: &dyn PrefixIndex) -> impl Iterator<Item = PromptKeys> {
        self.forms.iter().map(move |tokens| index.hash(Prompt { tokens, ..Prompt::default() }))
    }
}

/// The tokens that chats with this system prompt have in common; `None` where the template refuses
/// one.
fn chat(system: &str, model: &PromptModel) -> Option<Vec<TokenId>> {
    let tokens = |question: &str| {
        let messages = json!([
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ]);
        let input = RenderInput {
            messages: &messages,
            tools: None,
            generation_prompt: GenerationPrompt::Add,
            now_unix_s: unix_seconds() as i64,
            extra: &Map::new(),
        };
        model.chat_tokens(&input).ok()
    };
    // The two questions have no common beginning, so the common tokens end where the questions
    // begin.
    let (one, other) = (tokens("A")?, tokens("1")?);
    let pairs = one.iter().zip(&other);
    let same = pairs.take_while(|(one, other)| one == other).count();
    Some(one[..same].to_vec())
}

/// The tokens of a text, less the last one: what follows may join it.
fn plain(text: &str, model: &PromptModel) -> Option<Vec<TokenId>> {
    let encoded = model.tokenizer.encode(text, SpecialTokensIn::AddBosEos);
    let mut tokens = encoded.ok()?;
    tokens.pop();
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_start_of_a_chat_and_of_a_plain_prompt() {
        let model = PromptModel::toy();
        let text = "You are the assistant of a shop. ".repeat(20);
        let label = PrefixLabel { name: "shop".to_owned(), text: text.clone() };
        let PrefixLabels(labels) = PrefixLabels::new(&[label], &model);
        let [chat, plain] = &labels[0].forms[..] else {
            panic!("two forms: {labels:?}");
        };
        let whole = model.tokenizer.encode(&text, SpecialTokensIn::AddBosEos);
        assert!(whole.expect("tokens").starts_with(plain));
        assert!(chat.len() > plain.len() && !chat.starts_with(plain));
    }
}
