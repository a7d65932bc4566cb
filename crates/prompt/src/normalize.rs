//! Requests rewritten so that those which mean the same share their front: one normalizer per
//! mistake of clients that can be undone without asking them.
//!
//! | name | undoes | by |
//! |---|---|---|
//! | `tools` | tools in changing order | sorting them, a server's behind the client's own |
//! | `json-keys` | keys in changing order | sorting those of tools and of earlier calls |
//! | `nonce` | ids that are always new | dropping lines known to be nothing else |
//! | `clock` | times of day | cutting the time off a date that is said to be now |
//! | `white-space` | line ends, trailing blanks, blank lines | writing them one way |
//! | `thinking` | thinking dropped from some answers | dropping it from all earlier ones |
//!
//! Clock and white space are looked for in system prompts only, ids there and in the first line of
//! a plain prompt.
//!
//! They work on a request's JSON: `messages`, `tools`, and of a plain `prompt` its first line.
//! They know no model and no template. What they do not understand (another type where a text is
//! expected, a tool without a name, arguments that are no JSON) they leave as it is.
//!
//! Invariants, by the tests: applying twice is applying once; requests that differ by nothing but
//! one of these mistakes become equal; of two requests with the same tools, what they had in common
//! at their fronts they still have.
//!
//! None is on by default, because each removes something that a client may have wanted: the
//! order in which a model reads its tools, an id that it was to repeat, the time of day, what it
//! thought one step ago. Documents in changing order are left alone: their order can carry meaning.
//! Trimmed histories and other templates cannot be undone, because what is missing is not there.

mod clock;
mod json_keys;
mod lines;
mod nonce;
mod system;
mod thinking;
mod tools;
mod white_space;

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// One way to rewrite requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalizer {
    /// Sorts tools.
    Tools,
    /// Sorts keys of tools and of the arguments of earlier calls.
    JsonKeys,
    /// Drops lines with ids.
    Nonce,
    /// Cuts the time of day.
    Clock,
    /// Line ends, trailing blanks, blank lines.
    WhiteSpace,
    /// Drops thinking from earlier answers.
    Thinking,
}

impl Normalizer {
    /// All of them, in the order in which they are applied: lines are dropped before blank ones
    /// are counted.
    pub const ALL: [Self; 6] =
        [Self::Tools, Self::JsonKeys, Self::Nonce, Self::Clock, Self::WhiteSpace, Self::Thinking];

    /// Its name, and the function that rewrites a request and tells whether that changed it.
    fn row(self) -> (&'static str, fn(&mut Value) -> bool) {
        match self {
            Self::Tools => ("tools", tools::sort),
            Self::JsonKeys => ("json-keys", json_keys::sort),
            Self::Nonce => ("nonce", nonce::drop),
            Self::Clock => ("clock", clock::cut),
            Self::WhiteSpace => ("white-space", white_space::tidy),
            Self::Thinking => ("thinking", thinking::drop),
        }
    }

    /// Its name on command lines and in headers.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The cause of lost prefixes that it undoes, as reports call it.
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::Tools => "tool-order",
            other => other.name(),
        }
    }

    /// Rewrites a request; whether that changed it.
    fn apply(self, request: &mut Value) -> bool {
        (self.row().1)(request)
    }
}

/// The items of a request's or a message's list; none where it has no such list.
fn list<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Changes every item; whether that changed one.
fn change_each<T>(items: impl IntoIterator<Item = T>, change: impl FnMut(T) -> bool) -> bool {
    items.into_iter().map(change).fold(false, |any, is_changed| any | is_changed)
}

/// Replaces a text, if there is another one for it; whether there was.
fn replace(text: &mut String, new: Option<String>) -> bool {
    let new = new.filter(|new| new != text);
    new.map(|new| *text = new).is_some()
}

impl fmt::Display for Normalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Normalizer {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no normalizer {name}; known: {names}, and all")
        })
    }
}

/// Some of them: none unless chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Normalizers(u8);

impl Normalizers {
    /// All of them.
    #[must_use]
    pub fn all() -> Self {
        Normalizer::ALL.into_iter().collect()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the normalizers, in the order in which they are applied.
    pub fn iter(self) -> impl Iterator<Item = Normalizer> {
        let all = Normalizer::ALL.into_iter();
        all.filter(move |&one| self.0 & bit(one) != 0)
    }

    /// Rewrites a request, an object with `messages` and `tools` or `prompt`: those that changed
    /// something. Fields of other names stay as they are. Takes time in proportion to its length.
    pub fn apply(self, request: &mut Value) -> Self {
        self.iter().filter(|one| one.apply(request)).collect()
    }
}

fn bit(one: Normalizer) -> u8 {
    // Six variants fit eight bits.
    1 << one as u8
}

impl FromIterator<Normalizer> for Normalizers {
    fn from_iter<I: IntoIterator<Item = Normalizer>>(normalizers: I) -> Self {
        Self(normalizers.into_iter().fold(0, |set, one| set | bit(one)))
    }
}

/// Their names with commas between.
impl fmt::Display for Normalizers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Normalizer::name).collect();
        f.write_str(&names.join(","))
    }
}

/// Reads names with commas between, or `all`; an empty text gives an empty set.
impl FromStr for Normalizers {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let names = list.split(',').map(str::trim);
        let mut names = names.filter(|name| !name.is_empty());
        names.try_fold(Self::default(), |set, name| {
            let more = match name {
                "all" => Self::all(),
                name => [name.parse::<Normalizer>()?].into_iter().collect(),
            };
            Ok(Self(set.0 | more.0))
        })
    }
}

/// Applies one twice and compares what comes out.
#[cfg(test)]
#[track_caller]
fn check(one: Normalizer, mut request: Value, expected: Value) {
    // As texts: equal values may have their keys in another order.
    let (before, expected) = (request.to_string(), expected.to_string());
    let changed = one.apply(&mut request);
    assert_eq!(request.to_string(), expected);
    assert_eq!(changed, before != expected, "says whether it changed");
    assert!(!one.apply(&mut request), "twice is once");
    assert_eq!(request.to_string(), expected);
}

/// The same for the text of a system prompt.
#[cfg(test)]
#[track_caller]
fn check_system(one: Normalizer, text: &str, expected: &str) {
    let request = |text: &str| {
        let user = "At 2025-03-03 14:05, now:  \r\n\n\n\nRequest-ID: 0123456789abcdef";
        serde_json::json!({"messages": [
            {"role": "system", "content": text},
            {"role": "user", "content": user},
        ]})
    };
    check(one, request(text), request(expected));
    let parts = |text: &str| {
        serde_json::json!({"messages": [
            {"role": "developer", "content": [{"type": "text", "text": text}]},
        ]})
    };
    check(one, parts(text), parts(expected));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_read_and_written() {
        let two: Normalizers = "clock, tools".parse().expect("names");
        assert_eq!(two.to_string(), "tools,clock");
        assert_eq!("all".parse(), Ok(Normalizers::all()));
        assert_eq!("".parse(), Ok(Normalizers::default()));
        assert!(Normalizers::default().is_empty() && !two.is_empty());
        let error = "tools,seam".parse::<Normalizers>().expect_err("no such");
        assert!(error.contains("seam") && error.contains("white-space, thinking, and all"));
        for one in Normalizer::ALL {
            assert_eq!(one.name().parse(), Ok(one));
        }
        let causes = Normalizer::ALL.map(Normalizer::cause);
        assert_eq!(causes[..2], ["tool-order", "json-keys"]);
    }

    #[test]
    fn what_is_not_understood_stays() {
        let odd = [
            json!(null),
            json!([1, 2]),
            json!({"messages": "hello", "tools": 7, "prompt": [1, 2, 3]}),
            json!({"messages": [7, null, {"role": 3}, {"role": "system", "content": 9},
                {"role": "assistant", "tool_calls": [{"function": {"arguments": {"b": 1}}}, 4]},
                {"role": "assistant", "tool_calls": "x", "content": [{"type": "image"}, 5]}]}),
            json!({"tools": [{"function": {"name": "b"}}, {"function": {}}]}),
            json!({"prompt": ["one", "two"], "model": "m"}),
        ];
        for mut request in odd {
            let before = request.to_string();
            assert_eq!(Normalizers::all().apply(&mut request), Normalizers::default());
            assert_eq!(request.to_string(), before);
        }
    }

    #[test]
    fn all_together_say_which_changed_something() {
        let mut request = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "Request-ID: 3f2a9c41\n\nNow: 2025-03-03 14:05.  "},
                {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
                {"role": "user", "content": "More."},
            ],
            "tools": [{"function": {"name": "b"}}, {"function": {"name": "a"}}],
        });
        let changed = Normalizers::all().apply(&mut request);
        assert_eq!(changed.to_string(), "tools,nonce,clock,white-space,thinking");
        assert_eq!(request["messages"][0]["content"], "Now: 2025-03-03.");
        assert_eq!(request["messages"][1]["content"], "Yes.");
        let none = Normalizers::all().apply(&mut request);
        assert!(none.is_empty(), "{none}");
    }
}
