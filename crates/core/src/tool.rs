//! Tools that an answer calls.

use crate::fnv1a;

/// The tools that an answer calls, as one of 63 classes of names: the class of an answer that calls
/// `read_file` is that of every such answer. Other names may share it.
///
/// How long a tool runs, and whether a person has to agree, is the same from one call to the next.
/// So the class tells when a conversation continues, and needs no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolClass(u8);

impl ToolClass {
    /// Number of classes, with that of answers without known tools.
    pub const COUNT: usize = 64;

    /// The class of an answer that calls tools of these names, whatever their order and number of
    /// calls; the default without a name.
    #[must_use]
    pub fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hashes: Vec<u64> = names.into_iter().map(|name| fnv1a(name.as_bytes())).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let all = hashes.iter().fold(0, |all: u64, one| all.wrapping_mul(31).wrapping_add(*one));
        if hashes.is_empty() { Self(0) } else { Self(1 + (all % 63) as u8) }
    }

    /// The class with a number, as a trace has it; `None` from [`ToolClass::COUNT`] on.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// Its number, below [`ToolClass::COUNT`]; 0 without known tools.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_depends_on_the_names_alone() {
        let of = |names: &[&str]| ToolClass::of_names(names.iter().copied());
        assert_eq!(of(&[]), ToolClass::default());
        assert_eq!(of(&["read", "bash", "read"]), of(&["bash", "read"]));
        let tools = ["read", "bash", "web_search", "ask_user", "edit", "test"];
        let classes: std::collections::HashSet<_> = tools.iter().map(|name| of(&[name])).collect();
        assert_eq!(classes.len(), tools.len());
        for name in 0..1_000 {
            let class = of(&[&name.to_string()]);
            assert_ne!(class, ToolClass::default());
            assert_eq!(ToolClass::from_number(class.number()), Some(class));
        }
        assert_eq!(ToolClass::from_number(64), None);
    }
}
