//! Chat requests become the text and tokens that vLLM makes of them.
//!
//! The goldens in `parity` are answers of real servers of vLLM 0.30, 0.31 and 0.32, captured by
//! `tools/parity`: request shapes times chat templates. A shape that an engine refuses may become
//! anything here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headstart_prompt::dialect::ContentFormat;
use headstart_prompt::read_json;
use headstart_prompt::{
    Api, ChatTemplate, Dialect, NoExactTokens, PromptModel, SpecialTokens, VllmVersion,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// Output of an engine for a shape and a template.
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

/// The templates of a folder by name.
fn templates(folder: &Path, special_tokens: &SpecialTokens) -> BTreeMap<String, ChatTemplate> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let compiled = files.map(|path| {
        let source = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let template = ChatTemplate::new(&source, special_tokens.clone());
        (name.clone(), template.unwrap_or_else(|error| panic!("{name}: {error}")))
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

/// The routes with a conversation: names of their files, and how many cells must be equal.
const ROUTES: [(&str, Api, usize); 3] =
    [("", Api::Chat, 8000), ("messages-", Api::Messages, 400), ("responses-", Api::Responses, 400)];

#[test]
fn chats_become_the_tokens_of_each_version_of_vllm() {
    for (route, api, least) in ROUTES {
        check_route(route, api, least);
    }
}

fn check_route(route: &str, api: Api, least: usize) {
    let newest: Goldens = serde_json::from_str(&read(&format!("{route}vllm-0.32.json"))).unwrap();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/parity/templates");
    let templates = templates(&folder, &PromptModel::toy().special_tokens);
    for version in ["0.32", "0.31", "0.30"] {
        let older: Goldens = match version {
            "0.32" => Goldens::new(),
            version => {
                let file = format!("{route}vllm-{version}.json");
                serde_json::from_str(&read(&file)).unwrap()
            }
        };
        let mut counts = Counts::default();
        for (name, template) in &templates {
            counts.note_all(
                (route, api),
                version,
                &PromptModel::toy(),
                (name, template),
                |shape| golden(&older, &newest, shape, name),
            );
        }
        counts.show(&format!("vLLM {version} {api:?}"));
        counts.check(least);
    }
}

/// Opt-in: `HEADSTART_REAL_TEMPLATES` names a folder with templates that packages ship, and
/// `HEADSTART_REAL_GOLDENS` what vLLM 0.32 made of them by `tools/parity/capture.py real`, with a
/// model whose beginning of a sequence is `<|endoftext|>`.
#[test]
fn real_templates_render_as_by_vllm() {
    let variable = std::env::var;
    let (Ok(folder), Ok(goldens)) =
        (variable("HEADSTART_REAL_TEMPLATES"), variable("HEADSTART_REAL_GOLDENS"))
    else {
        eprintln!("skipped: HEADSTART_REAL_TEMPLATES and HEADSTART_REAL_GOLDENS are not set");
        return;
    };
    let goldens: Goldens =
        serde_json::from_str(&std::fs::read_to_string(goldens).unwrap()).unwrap();
    let mut model = PromptModel::toy();
    model.special_tokens.bos = Some("<|endoftext|>".to_owned());
    let (none, mut equal, mut all) = (Goldens::new(), 0, Counts::default());
    for (name, template) in &templates(Path::new(&folder), &model.special_tokens) {
        let mut counts = Counts::default();
        counts.note_all(("", Api::Chat), "0.32", &model, (name, template), |shape| {
            golden(&none, &goldens, shape, name)
        });
        let inexact: usize = counts.inexact.values().map(Vec::len).sum();
        let rendered = counts.equal + counts.wrong.len() + inexact;
        let is_equal = counts.equal * 100 >= rendered * 99;
        equal += usize::from(is_equal);
        println!(
            "{name:40} {:4} of {rendered:4} equal, {inexact:3} reported, {:3} wrong",
            counts.equal,
            counts.wrong.len()
        );
        all.add(counts);
    }
    all.show("vLLM 0.32, real templates");
    assert!(all.wrong.is_empty(), "{} cells differ", all.wrong.len());
    assert!(equal >= 30, "{equal} templates are equal in 99 % of their cells");
}

#[test]
fn chats_become_the_tokens_of_sglang() {
    let goldens: Goldens = serde_json::from_str(&read("sglang-0.5.json")).unwrap();
    let (none, mut counts) = (Goldens::new(), Counts::default());
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/parity/templates");
    for (name, template) in &templates(&folder, &PromptModel::toy().special_tokens) {
        let toy = PromptModel::toy();
        counts.note_all(("", Api::Chat), "sglang", &toy, (name, template), |shape| {
            let missing = &*Box::leak(Box::new(Golden { status: Some(404), ..Golden::default() }));
            Some(golden(&none, &goldens, shape, name).unwrap_or(missing))
        });
    }
    counts.show("SGLang 0.5.23");
    counts.check(7000);
}

#[derive(Deserialize)]
struct Detected {
    /// Absent for the templates of the matrix.
    template: Option<String>,
    format: String,
}

#[test]
fn content_formats_are_those_that_vllm_detects() {
    let cases: BTreeMap<String, Detected> =
        serde_json::from_str(&read("content-formats.json")).unwrap();
    assert!(cases.len() >= 79);
    let mut wrong = Vec::new();
    for (name, case) in cases {
        let expected = match case.format.as_str() {
            "openai" => ContentFormat::Parts,
            _ => ContentFormat::String,
        };
        let of_matrix = || read(&format!("{name}.jinja"));
        let source = case.template.unwrap_or_else(of_matrix);
        if ContentFormat::detect_as_vllm(&source) != expected {
            wrong.push(format!("{name}: {expected:?}: {source}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
    fn note_all<'g>(
        &mut self,
        (route, api): (&str, Api),
        version: &str,
        model: &PromptModel,
        (name, template): (&str, &ChatTemplate),
        golden: impl Fn(&str) -> Option<&'g Golden>,
    ) {
        let shapes = read(&format!("{route}shapes.json"));
        let shapes: BTreeMap<&str, &RawValue> = serde_json::from_str(&shapes).unwrap();
        let dialect = match version {
            "sglang" => Dialect::Sglang,
            version => Dialect::Vllm(VllmVersion::parse(version).unwrap()),
        };
        let model = PromptModel {
            tokenizer: model.tokenizer.clone(),
            template: Some(template.clone()),
            named_templates: BTreeMap::new(),
            special_tokens: model.special_tokens.clone(),
        };
        for (shape, request) in shapes {
            // The smaller matrices have fewer templates.
            let Some(golden) = golden(shape) else {
                assert!(api != Api::Chat, "no golden for {shape}/{name}");
                continue;
            };
            self.note(&format!("{shape}/{name}"), golden, || {
                let Value::Object(request) = read_json(request.get()).unwrap() else {
                    panic!("a request is an object");
                };
                let chat = model.chat_prompt(dialect, api, request, 0)?;
                let mut ids = model.tokenizer.encode(&chat.text, chat.special).unwrap();
                model.complete(&chat, &mut ids).unwrap();
                Ok((chat.text, ids))
            });
        }
    }

    /// All cells are equal, and they are no fewer than `least`.
    fn check(&self, least: usize) {
        let inexact: usize = self.inexact.values().map(Vec::len).sum();
        assert_eq!(inexact, 0, "cells are reported as not exact");
        assert!(self.wrong.is_empty(), "{} cells differ", self.wrong.len());
        assert!(self.equal >= least, "{} cells are equal", self.equal);
    }

    fn add(&mut self, other: Self) {
        self.equal += other.equal;
        self.refused += other.refused;
        self.wrong.extend(other.wrong);
        for (reason, cells) in other.inexact {
            self.inexact.entry(reason).or_default().extend(cells);
        }
    }

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
                let is_hash = golden.hash.as_ref().is_none_or(|golden| *golden == hash(&ids));
                assert!(golden.ids.is_some() || golden.hash.is_some(), "{cell}");
                if is_ids && is_hash {
                    self.equal += 1;
                } else {
                    self.wrong.push(format!("{cell}\n  ours   {text:?}\n  engine {golden:?}"));
                }
            }
            Err(error) => {
                let line = format!("{cell}: {error}\n  engine {golden:?}");
                self.inexact.entry(error.reason()).or_default().push(line);
            }
        }
    }

    fn show(&self, what: &str) {
        let inexact: usize = self.inexact.values().map(Vec::len).sum();
        println!(
            "{what}: {} equal, {} refused by the engine, {inexact} reported as inexact, \
             {} wrong",
            self.equal,
            self.refused,
            self.wrong.len(),
        );
        let some = std::env::var("PARITY_SHOW").map_or(5, |count| count.parse().unwrap());
        for (reason, cells) in &self.inexact {
            println!("{reason}: {}", cells.len());
            cells.iter().take(some).for_each(|cell| println!("{cell}"));
        }
        self.wrong.iter().take(some).for_each(|cell| println!("{cell}"));
    }
}

fn hash(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let digest = Sha256::digest(bytes);
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
