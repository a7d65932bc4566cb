//! What a trace says about itself, beside its requests.

/// Facts about a whole trace. The list of types grows while a reader reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// Tokens per block id; 0 where the trace has lengths only and no blocks.
    pub block_tokens: u32,
    /// Names of the request types; [`headstart_core::TraceRequest::request_type`] is an index.
    /// The first is always `unknown`.
    pub types: Vec<String>,
    /// Where the sessions come from.
    pub sessions: Provenance,
    /// Where the turns come from.
    pub turns: Provenance,
    /// Where the request types come from.
    pub types_from: Provenance,
}

/// Where a fact about a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// The trace says it.
    Given,
    /// Derived from the blocks by prefix containment: plausible, not certain.
    Inferred,
    /// Not known.
    Absent,
}

impl TraceInfo {
    /// A trace of `block_tokens` tokens a block of which nothing else is known.
    #[must_use]
    pub fn new(block_tokens: u32) -> Self {
        Self {
            block_tokens,
            types: vec!["unknown".to_owned()],
            sessions: Provenance::Absent,
            turns: Provenance::Absent,
            types_from: Provenance::Absent,
        }
    }

    /// The index of the type `name`, which is added when new. Types beyond the 65,535th are
    /// `unknown`.
    pub fn type_index(&mut self, name: &str) -> u16 {
        if let Some(index) = self.types.iter().position(|known| known == name) {
            return u16::try_from(index).unwrap_or(0);
        }
        let Ok(index) = u16::try_from(self.types.len()) else {
            return 0;
        };
        self.types.push(name.to_owned());
        index
    }
}

impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Given => "given",
            Self::Inferred => "inferred",
            Self::Absent => "absent",
        })
    }
}
