//! Words and templates of planted conversations: the lists of `vocabulary.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

type Words = Vec<&'static str>;

/// A field with things to talk about and things to make. All intents share the fields, so that they
/// tell nothing of the outcome.
pub(super) struct SubjectMatter {
    /// Fits "tell me about …".
    pub(super) topics: Words,
    /// Fits "my …": something written or made.
    pub(super) things: Words,
}

/// Each as likely.
pub(super) static SUBJECTS: LazyLock<Vec<SubjectMatter>> = LazyLock::new(|| {
    let words = |text: &'static str| text.split(", ").collect();
    let rows = list("subjects").iter().filter_map(|row| row.split_once("; "));
    rows.map(|(topics, things)| SubjectMatter { topics: words(topics), things: words(things) })
        .collect()
});

static LISTS: LazyLock<HashMap<&str, Words>> = LazyLock::new(|| {
    let mut lists: HashMap<&str, Words> = HashMap::new();
    let mut name = "";
    let lines = include_str!("vocabulary.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_suffix(':') {
            Some(next) => name = next,
            None => lists.entry(name).or_default().push(line),
        }
    }
    lists
});

/// The entries of the list `name`, each as likely.
///
/// # Panics
/// When the file has no such list.
pub(super) fn list(name: &str) -> &'static [&'static str] {
    LISTS.get(name).expect("a list of vocabulary.txt")
}

#[cfg(test)]
mod tests {
    use super::super::signal::{Cue, Intent};
    use super::*;
    use crate::synth::planted::grammar::forms;

    #[test]
    fn each_intent_has_hundreds_of_forms_before_its_slots_are_filled() {
        for intent in Intent::ALL {
            let count: u64 = list(intent.templates()).iter().map(|t| forms(t)).sum();
            assert!(count >= 300, "{intent:?}: {count}");
        }
        for cue in [Cue::More, Cue::Done] {
            let templates = list(cue.templates().expect("something is said"));
            let count: u64 = templates.iter().map(|t| forms(t)).sum();
            assert!(count >= 80, "{cue:?}: {count}");
        }
    }

    #[test]
    fn all_lines_are_read() {
        assert_eq!(SUBJECTS.len(), 16);
        assert!(
            SUBJECTS.iter().all(|subject| (subject.topics.len(), subject.things.len()) == (8, 4))
        );
        assert_eq!((LISTS.len(), LISTS.values().map(Vec::len).sum::<usize>()), (19, 207));
    }
}
