//! Keys sorted in a JSON text, everything else byte for byte as it was.

/// Deepest nesting that is read: beyond it a text stays as it is.
const DEEPEST: usize = 64;

/// The text with the keys of all its objects sorted; nothing where they are, where it is no JSON,
/// and where a key occurs twice, whose meaning depends on the reader. Blanks between members stay
/// where they are and do not move with them.
pub(super) fn sorted(text: &str) -> Option<String> {
    // The reader below trusts the grammar, so the text is checked first.
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let mut reader = JsonReader { text, at: 0 };
    let mut sorted = String::with_capacity(text.len());
    sorted.push_str(reader.blanks());
    sorted.push_str(&reader.value(0)?);
    sorted.push_str(reader.blanks());
    (sorted != text).then_some(sorted)
}

/// Reads a text that is known to be JSON.
struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonReader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes bytes for as long as `is` says so.
    fn take(&mut self, is: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&is) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn blanks(&mut self) -> &'a str {
        self.take(|byte| byte.is_ascii_whitespace())
    }

    fn value(&mut self, depth: usize) -> Option<String> {
        if depth > DEEPEST {
            return None;
        }
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => Some(self.string().to_owned()),
            _ => {
                let is_end = |byte: u8| byte.is_ascii_whitespace() || b",]}".contains(&byte);
                Some(self.take(|byte| !is_end(byte)).to_owned())
            }
        }
    }

    fn string(&mut self) -> &'a str {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            // A backslash escapes one ASCII character; the rest of a `\u` escape is plain text.
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        &self.text[start..self.at]
    }

    /// One byte of punctuation with the blanks around it.
    fn mark(&mut self) -> String {
        let mut mark = self.blanks().to_owned();
        mark.push_str(&self.text[self.at..=self.at]);
        self.at += 1;
        mark.push_str(self.blanks());
        mark
    }

    fn array(&mut self, depth: usize) -> Option<String> {
        let mut array = self.mark();
        while self.peek()? != b']' {
            array.push_str(&self.value(depth + 1)?);
            let blanks = self.blanks();
            if self.peek()? == b',' {
                array.push_str(blanks);
                array.push_str(&self.mark());
            } else {
                array.push_str(blanks);
            }
        }
        self.at += 1;
        array.push(']');
        Some(array)
    }

    fn object(&mut self, depth: usize) -> Option<String> {
        let mut gaps = vec![self.mark()];
        let mut members: Vec<(String, String)> = Vec::new();
        while self.peek()? != b'}' {
            let raw = self.string();
            // Keys are compared as decoded, because an escaped letter makes no other key.
            let key: String = serde_json::from_str(raw).ok()?;
            // Arguments are evaluated from left to right: the colon is read before the value.
            let member = format!("{raw}{}{}", self.mark(), self.value(depth + 1)?);
            members.push((key, member));
            let mut gap = self.blanks().to_owned();
            if self.peek()? == b',' {
                gap.push_str(&self.mark());
            }
            gaps.push(gap);
        }
        self.at += 1;
        members.sort();
        if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        let mut gaps = gaps.into_iter();
        let mut object = gaps.next()?;
        for ((_, member), gap) in members.into_iter().zip(gaps) {
            object.push_str(&member);
            object.push_str(&gap);
        }
        object.push('}');
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;
    use serde_json::{Value, json};

    #[test]
    fn keys_move_and_bytes_stay() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(sorted(text).as_deref(), expected, "{text}");
        };
        check(r#"{"b":1,"a":2}"#, Some(r#"{"a":2,"b":1}"#));
        check(r#"{"b": 1e400, "a": "\u00e9\""}"#, Some(r#"{"a": "\u00e9\"", "b": 1e400}"#));
        check("{\n  \"b\": 1,\n  \"a\": [ ]\n}", Some("{\n  \"a\": [ ],\n  \"b\": 1\n}"));
        check(
            r#" [ {"b":{"d":1,"c":2},"a":0} , 7 ] "#,
            Some(r#" [ {"a":0,"b":{"c":2,"d":1}} , 7 ] "#),
        );
        check(r#"{"a":{},"b":[]}"#, None);
        check(r#"{"b":1,"a":2,"b":3}"#, None);
        check(r#"{"b":1,"a":2"#, None);
        check("", None);
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        check(&deep, None);
    }

    /// Against sorting the value itself.
    #[test]
    fn any_text_comes_out_as_its_sorted_value() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let value = random(&mut rng, 0);
            let texts = [value.to_string(), serde_json::to_string_pretty(&value).expect("JSON")];
            let expected = in_order(&value);
            let compact = sorted(&texts[0]).unwrap_or_else(|| texts[0].clone());
            assert_eq!(compact, expected.to_string(), "seed {seed}");
            let pretty = sorted(&texts[1]).unwrap_or_else(|| texts[1].clone());
            let read: Value = serde_json::from_str(&pretty).expect("JSON");
            assert_eq!(read.to_string(), expected.to_string(), "seed {seed}");
            assert_eq!(sorted(&pretty), None, "seed {seed}: twice is once");
        }
    }

    fn random(rng: &mut Rng, depth: usize) -> Value {
        match rng.below(if depth > 3 { 3 } else { 5 }) {
            0 => json!(rng.below(1000)),
            1 => json!("a \"b\\, {c}: [d]"),
            2 => json!(null),
            3 => (0..rng.below(4)).map(|_| random(rng, depth + 1)).collect(),
            _ => {
                let entries = (0..rng.below(6)).map(|_| {
                    let key = format!("k\"{}", rng.below(50));
                    (key, random(rng, depth + 1))
                });
                Value::Object(entries.collect())
            }
        }
    }

    fn in_order(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(in_order).collect(),
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| key.as_str());
                let entries = entries.into_iter();
                Value::Object(entries.map(|(key, value)| (key.clone(), in_order(value))).collect())
            }
            other => other.clone(),
        }
    }
}
