//! Chat requests become the text and tokens that vLLM makes of them.
//!
//! The goldens in `parity` are answers of real servers of vLLM 0.30, 0.31 and 0.32, captured by
//! `tools/parity`: request shapes times chat templates. A shape that an engine refuses may become
//! anything here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headstart_prompt::{ChatTemplate, Dialect, NoExactTokens, PromptModel, VllmVersion};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// What an engine made of a shape by a template.
#[derive(Clone, Debug, Default, Deserialize)]
struct Golden {
    /// For those who read a failure.
    #[expect(dead_code, reason = "printed by Debug")]
    text: Option<String>,
    /// The first 16 hexadecimal digits of SHA-256 of the ids as little-endian `u32`.
    hash: Option<String>,
    ids: Option<Vec<u32>>,
    status: Option<u16>,
    /// Another shape with the same outcome.
    #[serde(rename = "as")]
    same_as: Option<String>,
}

type Goldens = BTreeMap<String, Golden>;

fn read(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/parity");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn templates() -> BTreeMap<String, ChatTemplate> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/parity/templates");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let compiled = files.map(|path| {
        let source = std::fs::read_to_string(&path).unwrap();
        let special_tokens = PromptModel::toy().special_tokens;
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let template = ChatTemplate::new(&source, special_tokens);
        (
            name.clone(),
            template.unwrap_or_else(|error| panic!("{name}: {error}")),
        )
    });
    compiled.collect()
}

/// The golden of a cell: of the version where it differs, else of the newest.
fn golden<'a>(
    older: &'a Goldens,
    newest: &'a Goldens,
    shape: &str,
    template: &str,
) -> Option<&'a Golden> {
    let find = |goldens: &'a Goldens, shape: &str| {
        let of_all = || goldens.get(&format!("{shape}/*"));
        goldens.get(&format!("{shape}/{template}")).or_else(of_all)
    };
    let found = match find(older, shape) {
        Some(golden) => golden,
        None => find(newest, shape)?,
    };
    match &found.same_as {
        Some(other) => find(newest, other),
        None => Some(found),
    }
}

/// Shapes that the product reports as not exact, for numbers and texts that it cannot hold, or for a
/// limit that depends on the engine's context.
const INEXACT_SHAPES: [&str; 7] = [
    "arguments-not-json-numbers",
    "arguments-numbers",
    "arguments-overflow",
    "arguments-surrogate",
    "end-truncated-to-context",
    "text-surrogate",
    "tools-numbers",
];

/// Templates that the product reports as failed: the operator `%` for texts.
const INEXACT_TEMPLATES: [&str; 1] = ["percent"];

fn may_be_inexact(cell: &str) -> bool {
    let (shape, template) = cell.split_once('/').unwrap();
    INEXACT_SHAPES.contains(&shape) || INEXACT_TEMPLATES.contains(&template)
}

#[test]
fn chats_become_the_tokens_of_each_version_of_vllm() {
    let shapes = read("shapes.json");
    let shapes: BTreeMap<&str, &RawValue> = serde_json::from_str(&shapes).unwrap();
    let newest: Goldens = serde_json::from_str(&read("vllm-0.32.json")).unwrap();
    let templates = templates();
    for version in ["0.32", "0.31", "0.30"] {
        let older: Goldens = match version {
            "0.32" => Goldens::new(),
            version => serde_json::from_str(&read(&format!("vllm-{version}.json"))).unwrap(),
        };
        let dialect = Dialect::Vllm(VllmVersion::parse(version).unwrap());
        let mut counts = Counts::default();
        for (name, template) in &templates {
            let mut model = PromptModel::toy();
            model.template = Some(template.clone());
            for (shape, request) in &shapes {
                let Some(golden) = golden(&older, &newest, shape, name) else {
                    panic!("{version}: no golden for {shape}/{name}");
                };
                counts.note(&format!("{shape}/{name}"), golden, || {
                    // A lone half of a surrogate pair is no text here.
                    let request: Map<String, Value> = serde_json::from_str(request.get())
                        .map_err(|_| NoExactTokens::Malformed("messages"))?;
                    let chat = model.chat_prompt(dialect, request, 0)?;
                    let mut ids = model.tokenizer.encode(&chat.text, chat.special).unwrap();
                    chat.kept.truncate(&mut ids);
                    Ok((chat.text, ids))
                });
            }
        }
        counts.check(version);
    }
}

#[derive(Default)]
struct Counts {
    equal: usize,
    refused: usize,
    /// Named by the product as not exact.
    inexact: BTreeMap<&'static str, Vec<String>>,
    wrong: Vec<String>,
}

impl Counts {
    fn note(
        &mut self,
        cell: &str,
        golden: &Golden,
        render: impl FnOnce() -> Result<(String, Vec<u32>), NoExactTokens>,
    ) {
        if golden.status.is_some() {
            self.refused += 1;
            return;
        }
        match render() {
            Ok((text, ids)) => {
                // Ids decide; the engine's text is that of its ids, which may be truncated.
                let is_ids = golden.ids.as_ref().is_none_or(|golden| *golden == ids);
                let is_hash = golden
                    .hash
                    .as_ref()
                    .is_none_or(|golden| *golden == hash(&ids));
                assert!(golden.ids.is_some() || golden.hash.is_some(), "{cell}");
                if is_ids && is_hash {
                    self.equal += 1;
                } else {
                    self.wrong
                        .push(format!("{cell}\n  ours   {text:?}\n  engine {golden:?}"));
                }
            }
            Err(error) => {
                let line = format!("{cell}: {error}\n  engine {golden:?}");
                match may_be_inexact(cell) {
                    true => self.inexact.entry(error.reason()).or_default().push(line),
                    false => self.wrong.push(line),
                }
            }
        }
    }

    fn check(&self, version: &str) {
        let inexact: usize = self.inexact.values().map(Vec::len).sum();
        println!(
            "vLLM {version}: {} equal, {} refused by the engine, {inexact} reported as inexact, {} wrong",
            self.equal,
            self.refused,
            self.wrong.len(),
        );
        let some = std::env::var("PARITY_SHOW").map_or(20, |count| count.parse().unwrap());
        for (reason, cells) in &self.inexact {
            println!("{reason}: {}", cells.len());
            cells.iter().take(some).for_each(|cell| println!("{cell}"));
        }
        for wrong in self.wrong.iter().take(some) {
            println!("{wrong}");
        }
        assert!(self.wrong.is_empty(), "{} cells differ", self.wrong.len());
        assert!(self.equal >= 1500, "{} cells are equal", self.equal);
    }
}

fn hash(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let digest = Sha256::digest(bytes);
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
