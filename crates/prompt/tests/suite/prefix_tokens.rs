//! The prefix-tokenization cache against tokenizing whole texts.
//!
//! A dozen tokenizers, built from the toy's vocabulary in the shapes of well-known ones, read
//! texts made of everything that has ever made a difference: generated ones in any checkout, and
//! real conversations where `shared/data` stands beside the workspace.

mod cases;

use std::path::Path;
use std::sync::Arc;

use headstart_core::Rng;
use headstart_prompt::{BoundaryKind, PrefixTokens, SpecialTokensIn, Tokenizer};
use serde_json::Value;

use cases::{TOY, cases};

const KEY: [u8; 32] = [7; 32];
const CAPACITY_BYTES: usize = 8 << 20;
const WAYS: [SpecialTokensIn; 2] = [SpecialTokensIn::ParseOnly, SpecialTokensIn::AddBosEos];

fn caches(tokenizer: &Arc<Tokenizer>) -> Vec<PrefixTokens> {
    let cache = |bytes| {
        PrefixTokens::new(Arc::clone(tokenizer), CAPACITY_BYTES, KEY).with_segment_bytes(bytes)
    };
    [1, 40, 700].map(cache).into()
}

/// Every cache gives the whole text's tokens, at once and again.
fn check(name: &str, caches: &[PrefixTokens], text: &str) {
    for special in WAYS {
        let expected = caches[0].tokenizer().encode(text, special).unwrap();
        for cache in caches {
            for _ in 0..2 {
                let tokens = cache.encode(text, special).unwrap();
                assert!(tokens == expected, "{name} {special:?}: {text:?}");
            }
        }
    }
}

/// Fragments of random texts. Boundaries are dense, and so is what could spoil one.
const FRAGMENTS: &[&str] = &[
    "a",
    "A",
    "s",
    "the",
    "word",
    "right",
    "end of\nit",
    "The answer",
    "don",
    "'s",
    "'S",
    "'re",
    "'",
    "’s",
    "é",
    "e\u{301}",
    "\u{301}",
    "\u{323}\u{302}",
    "\u{338}",
    "İ",
    "ß",
    "ſ",
    "ǅ",
    "ﬁ",
    "Å",
    "привет",
    "Ж",
    "ς",
    "Σ",
    "中文",
    "字",
    "か",
    "\u{3099}",
    "ー",
    "한",
    "\u{1100}\u{1161}",
    "\u{11a8}",
    "नमस्ते",
    "ก",
    "กำ",
    "שלום",
    "\u{5b0}",
    "مرحبا",
    "،",
    "0",
    "7",
    "123",
    "1234567",
    "٣",
    "½",
    "Ⅷ",
    "²",
    "\n",
    "\r\n",
    "\r",
    "\n\n\n",
    " ",
    "  ",
    "     ",
    "\t",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{85}",
    "\u{b}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    ".",
    ",",
    "，",
    "。",
    "、",
    "!",
    "?!",
    "...",
    "-",
    "_",
    "__",
    "/",
    "\\",
    "\"",
    "(",
    ")",
    "{}",
    "<",
    ">",
    "|",
    "<|",
    "|>",
    "#",
    "##",
    "@",
    "▁",
    "▁the",
    "Ġ",
    "Ċ",
    "👍🏽",
    "👩‍👩‍👧",
    "🇩🇪",
    "❤️",
    "\u{0}",
    "\u{7f}",
    "\u{fffd}",
    "x = 1;",
    "fn f() {\n\t",
    "https://a.b/c?d=e&f",
    "<|im_start|>user\n",
    "<|im_start|>",
    "<|im_end|>",
    "<|im_end|>\n",
    "<|im_",
    "im_end|>",
    "<|im",
    "<|endoftext|>",
    "<|reserved_special_token_1",
    "<|reserved_special_token_17|>",
    "<s>",
    "</s>",
    "<s",
    "<unk>",
    "<tool>",
    " <mask> ",
    "<mask>",
    "<left>",
    " <left>",
    "<right>",
    "<right> ",
    " <both>\n",
    "<word>",
    " the",
    "a b\nc、d。e，f",
    "a b\nc",
    "<0x0A>",
];

fn mixture(rng: &mut Rng) -> String {
    // Sometimes of few kinds only, so that neighbours repeat.
    let kinds = [4, 12, FRAGMENTS.len()][rng.below(3)];
    let chosen: Vec<&str> = (0..kinds).map(|_| FRAGMENTS[rng.below(FRAGMENTS.len())]).collect();
    let spaces = rng.below(3) == 0;
    let mut text = String::new();
    for _ in 0..1 + rng.below(200) {
        text += chosen[rng.below(kinds)];
        if spaces && rng.below(2) == 0 {
            text.push(if rng.below(4) == 0 { '\n' } else { ' ' });
        }
    }
    text
}

#[test]
fn any_mixture_has_the_tokens_of_the_whole_text() {
    for (number, case) in cases().into_iter().enumerate() {
        let caches = caches(&case.tokenizer);
        assert_eq!(caches[0].boundaries(), case.kind, "{}", case.name);
        let mut rng = Rng::new(number as u64);
        for _ in 0..120 {
            check(case.name, &caches, &mixture(&mut rng));
        }
        for cache in &caches {
            cache.check();
            let hits = cache.stats().hit_bytes;
            assert_eq!(hits > 0, case.kind != BoundaryKind::Off, "{}", case.name);
        }
    }
}

/// All that can stand around a gap, for every recognised expression.
#[test]
fn every_neighbourhood_of_a_gap_holds() {
    let around: Vec<char> = "aAs'0. \n\r\t/字ー，é\u{301}_ςa ".chars().collect();
    for case in cases() {
        if case.kind != BoundaryKind::Words {
            continue;
        }
        let caches = &caches(&case.tokenizer)[..1];
        let mut rng = Rng::new(3);
        let mut draw = |most: usize| -> String {
            let length = rng.below(most + 1);
            (0..length).map(|_| around[rng.below(around.len())]).collect()
        };
        for _ in 0..700 {
            let (left, right) = (draw(4), draw(4));
            for gap in ["a ", "0\n", "字，", "A\n", "é 。"] {
                check(case.name, caches, &format!("{left}{gap}{right}"));
            }
        }
    }
}

#[test]
fn real_conversations_have_the_tokens_of_the_whole_text() {
    let Some(chats) = real_chats(300_000) else {
        eprintln!("skipped: no shared/data/sharegpt-sample-1k beside the workspace");
        return;
    };
    assert!(chats.len() > 20);
    for (number, case) in cases().into_iter().enumerate() {
        let caches = caches(&case.tokenizer);
        let mut rng = Rng::new(9);
        for chat in chats.iter().skip(number % 4).step_by(4) {
            check(case.name, &caches, chat);
            check(case.name, &caches, &mutated(chat, &mut rng));
        }
    }
}

/// Tokenizers of real models, in folders of `HEADSTART_TOKENIZERS`: their `tokenizer.json` in
/// their own folder each. Real conversations too, where they are available.
#[test]
fn tokenizers_of_models_give_the_tokens_of_the_whole_text() {
    let Some(folder) = std::env::var_os("HEADSTART_TOKENIZERS") else {
        eprintln!("skipped: set HEADSTART_TOKENIZERS to a folder with models' folders");
        return;
    };
    let mut folders: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
    folders.sort_by_key(std::fs::DirEntry::path);
    assert!(!folders.is_empty());
    for folder in folders {
        let path = folder.path().join("tokenizer.json");
        let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let added = json["added_tokens"].as_array().unwrap();
        let added: Vec<&str> = added.iter().filter_map(|token| token["content"].as_str()).collect();
        let tokenizer = Arc::new(Tokenizer::from_file(&path).unwrap());
        let (name, caches) = (folder.file_name(), caches(&tokenizer));
        let name = name.to_string_lossy();
        assert_ne!(caches[0].boundaries(), BoundaryKind::Off, "{name}");
        let mut rng = Rng::new(4);
        for _ in 0..100 {
            let text = mixture(&mut rng);
            check(&name, &caches, &with_tokens(&text, &added, &mut rng));
        }
        for chat in real_chats(200_000).unwrap_or_default().iter().step_by(3) {
            check(&name, &caches, &with_tokens(chat, &added, &mut rng));
            check(&name, &caches, &mutated(chat, &mut rng));
        }
        eprintln!("{name}: {:?}", caches[0]);
    }
}

/// Every turn of real conversations through one cache as it will serve.
#[test]
fn turns_of_real_conversations_tokenize_little() {
    let Some(chats) = real_chats(1_500_000) else {
        eprintln!("skipped: no shared/data/sharegpt-sample-1k beside the workspace");
        return;
    };
    let tokenizer = Arc::new(Tokenizer::from_bytes(TOY.as_bytes()).unwrap());
    let cache = PrefixTokens::new(Arc::clone(&tokenizer), CAPACITY_BYTES, KEY);
    let mut asked = 0;
    for chat in &chats {
        for (end, _) in chat.match_indices("<|im_start|>assistant\n") {
            let prompt = &chat[..end];
            asked += prompt.len() as u64;
            let tokens = cache.encode(prompt, SpecialTokensIn::ParseOnly).unwrap();
            let expected = tokenizer.encode(prompt, SpecialTokensIn::ParseOnly).unwrap();
            assert!(tokens == expected, "{prompt:?}");
        }
    }
    let stats = cache.stats();
    assert_eq!(stats.hit_bytes + stats.miss_bytes, asked);
    eprintln!("{asked} bytes asked, {stats:?}");
    assert!(stats.hit_bytes > 0);
    cache.check();
}

/// Changes a chat in a few places: characters dropped, doubled, or replaced by a fragment.
fn mutated(text: &str, rng: &mut Rng) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..1 + characters.len() / 50 {
        let at = rng.below(characters.len().max(1));
        match rng.below(3) {
            0 if !characters.is_empty() => drop(characters.remove(at)),
            1 if !characters.is_empty() => characters.insert(at, characters[at]),
            _ => {
                let fragment = FRAGMENTS[rng.below(FRAGMENTS.len())];
                characters.splice(at..at, fragment.chars());
            }
        }
    }
    characters.into_iter().collect()
}

/// `text` with a model's own tokens in the place of the toy's and elsewhere.
fn with_tokens(text: &str, added: &[&str], rng: &mut Rng) -> String {
    let mut mixed = String::new();
    for part in text.split_inclusive("<|im_start|>") {
        mixed += part.trim_end_matches("<|im_start|>");
        mixed += added[rng.below(added.len())];
    }
    for _ in 0..4 {
        let at = mixed.ceil_char_boundary(rng.below(mixed.len() + 1));
        mixed.insert_str(at, added[rng.below(added.len())]);
    }
    mixed
}

fn real_chats(bytes: u64) -> Option<Vec<String>> {
    use std::io::Read;
    let data = "../../../shared/data/sharegpt-sample-1k/conversations.jsonl.zst";
    let file = std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(data)).ok()?;
    let decoder = ruzstd::decoding::StreamingDecoder::new(std::io::BufReader::new(file));
    let mut lines = Vec::new();
    decoder.unwrap().take(bytes).read_to_end(&mut lines).unwrap();
    // The last line may be cut.
    let lines = String::from_utf8_lossy(&lines).into_owned();
    let chats = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Some(chats.map(|chat| chat_ml(&chat)).collect())
}

fn chat_ml(chat: &Value) -> String {
    let turn = |turn: &Value| {
        let (role, text) = (turn["role"].as_str(), turn["text"].as_str());
        format!("<|im_start|>{}\n{}<|im_end|>\n", role.unwrap(), text.unwrap())
    };
    chat["turns"].as_array().unwrap().iter().map(turn).collect()
}

fn toy_cache(capacity_bytes: usize) -> PrefixTokens {
    let tokenizer = Tokenizer::from_bytes(TOY.as_bytes()).unwrap();
    PrefixTokens::new(Arc::new(tokenizer), capacity_bytes, KEY)
}

/// A turn of about `words` words.
fn turn(words: usize, rng: &mut Rng) -> String {
    let body: String = (0..words).map(|_| format!("word{} ", rng.below(1000))).collect();
    format!("<|im_start|>user\n{body}<|im_end|>\n")
}

#[test]
fn a_fifth_turn_tokenizes_what_is_new() {
    let cache = toy_cache(CAPACITY_BYTES);
    let mut rng = Rng::new(5);
    let mut text = String::new();
    for _ in 0..5 {
        let new = turn(5000, &mut rng);
        text += &new;
        let before = cache.stats();
        let tokens = cache.encode(&text, SpecialTokensIn::ParseOnly).unwrap();
        let expected = cache.tokenizer().encode(&text, SpecialTokensIn::ParseOnly).unwrap();
        assert_eq!(tokens, expected);
        let missed = cache.stats().miss_bytes - before.miss_bytes;
        let most = new.len() + headstart_prompt::prefix_tokens::SEGMENT_BYTES + 64;
        assert!(missed <= most as u64, "{missed} bytes for {} new ones", new.len());
    }
    // The same prompt again costs what is behind its last boundary.
    let before = cache.stats();
    cache.encode(&text, SpecialTokensIn::ParseOnly).unwrap();
    let after = cache.stats();
    assert!(after.miss_bytes - before.miss_bytes < 4200);
    assert_eq!(after.num_segments, before.num_segments);
}

#[test]
fn another_beginning_or_salt_shares_nothing() {
    let cache = toy_cache(CAPACITY_BYTES);
    let body = turn(5000, &mut Rng::new(1));
    let hits = |text: &str, salt| {
        let before = cache.stats().hit_bytes;
        let special = SpecialTokensIn::ParseOnly;
        let tokens = cache.encode_salted(text, special, salt).unwrap();
        assert_eq!(tokens, cache.tokenizer().encode(text, special).unwrap());
        cache.stats().hit_bytes - before
    };
    assert_eq!(hits(&body, None), 0);
    assert!(hits(&body, None) > 0);
    assert_eq!(hits(&format!("<|im_start|>{body}"), None), 0);
    assert_eq!(hits(&body, Some("a")), 0);
    assert_eq!(hits(&body, Some("")), 0);
    assert!(hits(&body, Some("a")) > 0);
}

#[test]
fn the_capacity_holds_and_what_is_dropped_is_tokenized_again() {
    for capacity_bytes in [0, 1000, 60_000] {
        let cache = toy_cache(capacity_bytes).with_segment_bytes(500);
        let mut rng = Rng::new(2);
        let texts: Vec<String> = (0..10).map(|_| turn(1500, &mut rng)).collect();
        for _ in 0..60 {
            check("toy", std::slice::from_ref(&cache), &texts[rng.below(texts.len())]);
            cache.check();
            assert!(cache.stats().held_bytes <= capacity_bytes);
        }
        assert_eq!(cache.stats().num_segments > 0, capacity_bytes > 5000);
    }
}

#[test]
fn threads_share_one_cache() {
    let cache = toy_cache(200_000).with_segment_bytes(300);
    let texts: Vec<String> = (0..6).map(|seed| turn(800, &mut Rng::new(seed))).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, texts) = (&cache, &texts);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..25 {
                    let text = &texts[rng.below(texts.len())];
                    check("toy", std::slice::from_ref(cache), text);
                }
            });
        }
    });
    cache.check();
    assert!(cache.stats().hit_bytes > 0);
}
