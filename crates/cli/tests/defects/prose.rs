//! English that reads like what people and models write, from a seed.
//!
//! A sentence is put together from a subject, what it does, to what, and when or why: some two
//! hundred thousand of them for each field, so that two documents share words and hardly ever a
//! sentence.

use headstart_core::Rng;

/// Phrases of one topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    subjects: &'static [&'static str],
    verbs: &'static [&'static str],
    objects: &'static [&'static str],
    circumstances: &'static [&'static str],
}

/// A shop and its customers.
pub(crate) const SHOP: Field = Field {
    subjects: &[
        "The parcel",
        "Our warehouse in Leeds",
        "The second tent pole",
        "A colleague of ours",
        "The carrier",
        "Your refund",
        "The replacement stove",
        "The order from last week",
        "The blue rucksack",
        "Customs",
        "The boot's left sole",
        "The map of the islands",
        "The gas canister",
        "The sleeping mat",
        "Our workshop",
        "The label on the box",
        "The whole shipment",
        "The pump of the filter",
        "Our supplier",
        "The credit note",
        "The driver",
        "The card payment",
    ],
    verbs: &[
        "was scanned together with",
        "has been waiting for",
        "does not match",
        "arrived before",
        "was packed next to",
        "has been exchanged for",
        "left the depot without",
        "was returned with",
        "is sold only with",
        "needs to be checked against",
        "was booked twice under",
        "will be sent after",
        "came apart beside",
        "has been repaired with",
        "was mistaken for",
        "replaces",
        "weighs as much as",
        "should not be used near",
        "is covered by",
        "was paid with",
        "cannot be combined with",
        "was reserved for",
    ],
    objects: &[
        "the two-person tent",
        "a pair of gaiters",
        "the original invoice",
        "the head torch",
        "the address in Kirkwall",
        "a voucher from the spring sale",
        "the spare burner",
        "the guarantee of two years",
        "the water bottle",
        "a set of eight pegs",
        "the other parcel",
        "the rain cover",
        "the walking poles",
        "the form for returns",
        "an older model",
        "the customer's gift card",
        "the woollen socks",
        "a missing buckle",
        "the cooking set",
        "the delivery note",
        "the compass",
        "the seam tape",
    ],
    circumstances: &[
        "on its way to the islands",
        "although the label was readable",
        "before noon on a working day",
        "because of the storm in the north",
        "as the photograph shows",
        "when the depot changed its shifts",
        "without any charge for you",
        "which happens about once a month",
        "after the second inspection",
        "so it has to go back first",
        "until the missing part turns up",
        "in spite of the wrong postcode",
        "as agreed on the telephone",
        "which nobody had noticed",
        "for reasons we are looking into",
        "and this will not happen again",
        "within the sixty days",
        "at the customer's own wish",
        "where it was signed for by a neighbour",
        "unless you would rather wait",
        "just as you described it",
        "and the enquiry is still open",
    ],
};

/// A repository and what is wrong with it.
pub(crate) const CODE: Field = Field {
    subjects: &[
        "The retry loop",
        "The session store",
        "Our parser for dates",
        "The migration script",
        "The connection pool",
        "The flaky test",
        "The cache of compiled queries",
        "The upload handler",
        "The background worker",
        "The lock around the index",
        "The configuration loader",
        "The pagination cursor",
        "The webhook receiver",
        "The rate limiter",
        "The schema check",
        "The error type",
        "The feature flag",
        "The health probe",
        "The build step",
        "The log formatter",
        "The token refresh",
        "The batch writer",
    ],
    verbs: &[
        "swallows",
        "is called before",
        "holds a reference to",
        "never releases",
        "overwrites",
        "was written for",
        "compares itself with",
        "runs in parallel with",
        "returns early from",
        "depends on the order of",
        "serializes",
        "leaks",
        "validates",
        "races against",
        "duplicates",
        "was copied out of",
        "silently truncates",
        "blocks",
        "retries",
        "ignores the limit of",
        "has no test for",
        "shadows",
    ],
    objects: &[
        "the second callback",
        "an empty response body",
        "the default time zone",
        "the parent transaction",
        "the list of open handles",
        "a closed channel",
        "the environment of the shell",
        "the fallback branch",
        "the last element of the page",
        "the counter of attempts",
        "a borrowed buffer",
        "the user's locale",
        "the temporary file",
        "the header of the reply",
        "the queue of pending jobs",
        "an expired certificate",
        "the primary key",
        "the old fixture",
        "the exit code",
        "the nested loop",
        "the shared mutex",
        "the first byte of the stream",
    ],
    circumstances: &[
        "when two requests arrive at once",
        "under a clock that jumps",
        "after the refactoring in spring",
        "only on the slow machine",
        "which the linter does not see",
        "if the input is longer than a page",
        "although the comment says otherwise",
        "unless the flag is set",
        "as the trace shows",
        "because the guard is dropped too early",
        "in release builds only",
        "once the disk is full",
        "before anything has been flushed",
        "on the first run after an upgrade",
        "when the peer hangs up",
        "and nobody reads the result",
        "so the assertion holds by accident",
        "for paths with spaces",
        "while the index is rebuilt",
        "in the error path",
        "if the variable is unset",
        "since the dependency was updated",
    ],
};

/// An office with handbooks, figures and appointments.
pub(crate) const OFFICE: Field = Field {
    subjects: &[
        "The lettings team",
        "A joint tenant",
        "The surveyor",
        "The annual gas check",
        "A lodger",
        "The arrears letter",
        "The key safe",
        "The caretaker",
        "The damp report",
        "The rent account",
        "An emergency repair",
        "The lift engineer",
        "A successor to the tenancy",
        "The service charge",
        "The communal boiler",
        "The notice of seeking possession",
        "The transfer list",
        "The contractor on call",
        "A missed appointment",
        "The deposit",
        "The inventory",
        "The fire door on each landing",
    ],
    verbs: &[
        "must be recorded beside",
        "takes precedence over",
        "is sent together with",
        "does not replace",
        "has to be agreed with",
        "is reviewed after",
        "may be waived by",
        "should be compared with",
        "is charged separately from",
        "is handed over with",
        "ends with",
        "depends upon",
        "is inspected before",
        "can be appealed against through",
        "is stored next to",
        "follows",
        "must never delay",
        "is exempt from",
        "is limited by",
        "starts again after",
        "is signed before",
        "needs the consent of",
    ],
    objects: &[
        "the statement of account",
        "the handover of keys",
        "a change of circumstances",
        "the duty manager",
        "the second visit",
        "the insurance policy",
        "the household's consent",
        "the schedule of works",
        "the court's permission",
        "the waiting period",
        "the safety certificate",
        "the previous agreement",
        "a payment plan",
        "the neighbour's complaint",
        "the estate walkabout",
        "the cleaning contract",
        "the allocation scheme",
        "the void inspection",
        "the meter reading",
        "the welfare visit",
        "the planned maintenance",
        "the complaints panel",
    ],
    circumstances: &[
        "within ten working days",
        "unless a child under five lives there",
        "in writing and by hand",
        "after two attempts at different times of day",
        "where the block has more than six storeys",
        "if the tenant is over seventy",
        "at the association's cost",
        "during the winter months",
        "as soon as access is given",
        "without a further reminder",
        "for flats above shops",
        "on the first Monday of the month",
        "except in sheltered housing",
        "when the reading is disputed",
        "subject to the budget of the estate",
        "before the keys are returned",
        "if asbestos is suspected",
        "for up to thirteen weeks",
        "in the presence of a witness",
        "once the panel has met",
        "where both parties agree",
        "until the certificate is renewed",
    ],
};

/// Draws text.
#[derive(Debug)]
pub(crate) struct Prose {
    pub(crate) rng: Rng,
}

impl Prose {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed) }
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.rng.below(of.len())]
    }

    pub(crate) fn sentence(&mut self, field: Field) -> String {
        let (subject, verb) = (self.pick(field.subjects), self.pick(field.verbs));
        let (object, end) = (self.pick(field.objects), self.pick(field.circumstances));
        if self.rng.below(4) > 0 {
            return format!("{subject} {verb} {object} {end}.");
        }
        let mut other = self.pick(field.subjects).to_owned();
        other[..1].make_ascii_lowercase();
        format!("{subject} {verb} {object}, and {other} {end}.")
    }

    pub(crate) fn paragraph(&mut self, field: Field, sentences: usize) -> String {
        let drawn: Vec<_> = (0..sentences).map(|_| self.sentence(field)).collect();
        drawn.join(" ")
    }

    /// Generates a user's question: one or two sentences, at times with a number or a date.
    pub(crate) fn question(&mut self, field: Field) -> String {
        let mut object = self.pick(field.objects).to_owned();
        let end = self.pick(field.circumstances);
        let start = self.pick(&[
            "Can you tell me what happens with",
            "Why is there a problem with",
            "What do I do about",
            "Please have a look at",
            "I am not sure I understand",
            "Who is responsible for",
            "Could you explain once more",
            "Is there anything new about",
            "We need to decide about",
            "How long does it take to sort out",
            "Somebody told me something else about",
            "Compare what you said before with",
        ]);
        match self.rng.below(5) {
            0 => object = format!("{object} (number {})", 10_000 + self.rng.below(89_999)),
            1 => object = format!("{object} from {} March", 1 + self.rng.below(30)),
            _ => {}
        }
        let more = match self.rng.below(3) {
            0 => String::new(),
            _ => format!(" {}", self.sentence(field)),
        };
        format!("{start} {object} {end}?{more}")
    }

    /// Generates a model's answer.
    pub(crate) fn answer(&mut self, field: Field) -> String {
        let first = 2 + self.rng.below(3);
        let mut text = self.paragraph(field, first);
        if self.rng.below(3) == 0 {
            let points = 2 + self.rng.below(3);
            for number in 1..=points {
                text.push_str(&format!("\n{number}. {}", self.sentence(field)));
            }
        } else if self.rng.below(2) == 0 {
            let second = 1 + self.rng.below(3);
            text.push_str(&format!("\n\n{}", self.paragraph(field, second)));
        }
        text
    }

    /// Generates a model's thought before an answer.
    pub(crate) fn thought(&mut self, field: Field) -> String {
        let start = self.pick(&[
            "The user wants to know whether",
            "Let me think about this. First,",
            "I should check if",
            "Two things could be meant here. Either",
            "Before I answer, note that",
            "Hmm. It seems that",
            "So the question is really why",
            "I have to be careful, because",
            "Looking at it again,",
        ]);
        let mut first = self.sentence(field);
        first[..1].make_ascii_lowercase();
        let more = 2 + self.rng.below(5);
        format!("{start} {first} {}", self.paragraph(field, more))
    }

    /// Chapters with headings, some `words` long.
    pub(crate) fn handbook(&mut self, field: Field, words: usize) -> String {
        let mut text = String::new();
        let mut chapter = 0;
        while text.split_whitespace().count() < words {
            chapter += 1;
            let mut title = self.pick(field.objects).to_owned();
            title[..1].make_ascii_uppercase();
            text.push_str(&format!("## {chapter}. {title}\n\n"));
            for _ in 0..2 {
                let sentences = 3 + self.rng.below(4);
                text.push_str(&self.paragraph(field, sentences));
                text.push_str("\n\n");
            }
        }
        text.trim_end().to_owned()
    }

    /// Some lines of a program, as a file is shown to an agent.
    pub(crate) fn code(&mut self) -> String {
        let mut lines = Vec::new();
        for _ in 0..2 + self.rng.below(3) {
            let name = self.name();
            let (field, limit) = (self.name(), 2 + self.rng.below(500));
            lines.push(format!("def {name}(self, {field}, limit={limit}):"));
            lines.push(format!("    \"\"\"{}\"\"\"", self.sentence(CODE)));
            lines.push(format!("    if {field} is None or len({field}) > limit:"));
            lines.push(format!("        raise ValueError(\"{}\")", self.pick(CODE.objects)));
            let (call, kept) = (self.name(), self.name());
            lines.push(format!("    {kept} = self.{call}({field}[:limit])"));
            lines.push(format!("    return {kept}"));
            lines.push(String::new());
        }
        lines.join("\n")
    }

    /// A name in a program.
    pub(crate) fn name(&mut self) -> String {
        let verb = self.pick(&[
            "load", "merge", "flush", "open", "check", "read", "drop", "split", "render", "watch",
            "queue", "bind", "parse", "close", "store", "count",
        ]);
        let noun = self.pick(&[
            "session", "batch", "cursor", "header", "index", "token", "window", "record", "lease",
            "chunk", "path", "fixture", "column", "router", "digest", "worker",
        ]);
        format!("{verb}_{noun}")
    }

    /// This many hexadecimal digits.
    pub(crate) fn hex(&mut self, digits: usize) -> String {
        let digit = |rng: &mut Rng| char::from(b"0123456789abcdef"[rng.below(16)]);
        (0..digits).map(|_| digit(&mut self.rng)).collect()
    }

    /// A random UUID.
    pub(crate) fn uuid(&mut self) -> String {
        let variant = self.pick(&["8", "9", "a", "b"]);
        let (a, b, c, d, e) = (self.hex(8), self.hex(4), self.hex(3), self.hex(3), self.hex(12));
        format!("{a}-{b}-4{c}-{variant}{d}-{e}")
    }
}
