//! One word of a sketch: its keyed hash, where it stands, what kind it is.

/// Longest word or run of white space, bytes; what is longer is cut into several.
pub const WORD_BYTES_MAX: usize = 256;

/// The kind of a word, by its letters and its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// Letters; a character of a script without spaces.
    Plain,
    /// Letters with `_` or a capital among them, as functions and fields are called.
    Identifier,
    /// Letters with figures among them, as names have them: `doc_17`.
    Mixed,
    /// Four or more letters from a to f: a word, or a hexadecimal number without figures.
    HexLetters,
    /// Decimal digits, also `3rd`.
    Number,
    /// Five or more hexadecimal digits with letters and figures among them.
    Hex,
    /// Letters and figures in random order: an id, a signature.
    Random,
    /// A UUID.
    Uuid,
    /// Seconds, milliseconds, microseconds or nanoseconds since 1970, by length and first digits.
    Epoch,
    /// A date in figures, perhaps with a time behind it.
    Date,
    /// A time of day: `17:35`, `5pm`.
    Time,
    /// The name of a month.
    Month,
    /// The name of a day of the week.
    Weekday,
    /// A part of the day: `afternoon`.
    DayPart,
    /// A number in letters: `three`, `third`, `quarter`.
    Spelled,
    /// `AM`, `PM` and the names of time zones.
    Zone,
    /// `seconds`, `days`, and what else counts time.
    TimeUnit,
    /// A character that counts time, or tells halves of a day, where it stands: 3月5日, 午後.
    TimeSign,
    /// A word that announces a time: `now`, `today`, `date`.
    TimeLabel,
    /// A word that announces an id that belongs to one request: `request`, `nonce`, `trace`.
    RequestLabel,
    /// A word that announces any id.
    IdLabel,
    /// A word of tool definitions: `parameters`, `input_schema`.
    ToolLabel,
    /// A word of signatures and schemas: `string`, `args`.
    TypeLabel,
    /// A word that announces documents: `sources`, `context`.
    DocumentLabel,
    /// A word that announces a field of a record: `title`.
    RecordLabel,
    /// Another name with a colon behind it at the start of a line, as transcripts have them.
    Speaker,
    /// The role of a speaker: `user` behind a marker, or `User:` at the start of a line.
    Role,
    /// White space, of any length.
    Space,
    /// One character that is neither letter nor digit.
    Punctuation,
    /// Markup of a chat template: `<|im_start|>`, `[INST]`.
    Marker,
    /// A tag of tool definitions: `<tool>`.
    ToolTag,
    /// Another tag: `<document>`.
    Tag,
    /// Begins a thinking block.
    ThinkOpen,
    /// Ends one.
    ThinkClose,
}

impl Class {
    /// Whether the word itself says a time.
    pub(super) fn is_time(self) -> bool {
        matches!(
            self,
            Self::Epoch | Self::Date | Self::Time | Self::Month | Self::Weekday | Self::DayPart
        )
    }

    /// Whether the word may be a part of a time that others say.
    pub(super) fn may_be_of_time(self) -> bool {
        let beside = [Self::Zone, Self::TimeUnit, Self::TimeSign, Self::TimeLabel];
        self.is_time() || self.is_figure() || beside.contains(&self)
    }

    /// Whether the word is a number and nothing more.
    pub(super) fn is_figure(self) -> bool {
        matches!(self, Self::Number | Self::Spelled)
    }

    /// Whether the word is letters that say nothing of themselves.
    pub(super) fn is_letters(self) -> bool {
        let labels = [Self::TypeLabel, Self::DocumentLabel, Self::RecordLabel];
        matches!(self, Self::Plain | Self::Identifier | Self::Speaker) || labels.contains(&self)
    }

    /// Whether the word is a tag.
    pub(super) fn is_tag(self) -> bool {
        let thoughts = matches!(self, Self::ThinkOpen | Self::ThinkClose);
        thoughts || matches!(self, Self::Tag | Self::ToolTag)
    }

    /// Whether a message begins here: of a chat, or of a transcript.
    pub(super) fn is_turn(self) -> bool {
        matches!(self, Self::Role | Self::Speaker)
    }

    /// Whether the word is an id or another number that is not written by hand.
    pub(super) fn is_random(self) -> bool {
        matches!(self, Self::Uuid | Self::Random | Self::Hex)
    }

    /// Whether the word is markup of a chat.
    pub(super) fn is_markup(self) -> bool {
        matches!(self, Self::Marker | Self::Role)
    }
}

/// One word. Sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Keyed hash of its bytes.
    pub hash: u64,
    /// Offset of its first byte in the text.
    pub start: u32,
    /// Its length, bytes.
    pub len: u16,
    /// The kind of the word.
    pub class: Class,
    /// Of ASCII punctuation, the character; of white space, `\n` where it holds a line end.
    pub(super) character: u8,
}

impl Word {
    /// The byte behind it.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.start + u32::from(self.len)
    }

    /// Whether it is anything but white space.
    #[must_use]
    pub fn is_ink(&self) -> bool {
        self.class != Class::Space
    }

    /// Whether it is that character of ASCII punctuation.
    pub(super) fn is(&self, character: u8) -> bool {
        self.class == Class::Punctuation && self.character == character
    }
}
