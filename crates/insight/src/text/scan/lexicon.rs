//! Words that say what stands beside them, without regard to capitals.

use crate::text::word::Class;

/// Longest entry, bytes.
const LEN_MAX: usize = 16;

/// The entries by class.
static GROUPS: &[(Class, &[&str])] = &[
    (
        Class::Month,
        &[
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
            "jan",
            "feb",
            "mar",
            "apr",
            "jun",
            "jul",
            "aug",
            "sep",
            "sept",
            "oct",
            "nov",
            "dec",
            // Of other languages, what no other word is.
            "januar",
            "februar",
            "juni",
            "juli",
            "oktober",
            "dezember",
            "janvier",
            "avril",
            "juin",
            "juillet",
            "septembre",
            "octobre",
            "novembre",
            "enero",
            "febrero",
            "marzo",
            "abril",
            "mayo",
            "junio",
            "julio",
            "agosto",
            "septiembre",
            "octubre",
            "noviembre",
            "diciembre",
            "janeiro",
            "fevereiro",
            "maio",
            "junho",
            "julho",
            "setembro",
            "outubro",
            "novembro",
            "dezembro",
            "gennaio",
            "febbraio",
            "aprile",
            "maggio",
            "giugno",
            "luglio",
            "settembre",
            "ottobre",
            "dicembre",
        ],
    ),
    (
        Class::Weekday,
        &[
            "monday",
            "tuesday",
            "wednesday",
            "thursday",
            "friday",
            "saturday",
            "sunday",
            "mon",
            "tue",
            "tues",
            "wed",
            "thu",
            "thur",
            "thurs",
            "fri",
            "sat",
            "sun",
            "montag",
            "dienstag",
            "mittwoch",
            "donnerstag",
            "freitag",
            "samstag",
            "sonntag",
            "lundi",
            "mardi",
            "mercredi",
            "jeudi",
            "vendredi",
            "samedi",
            "dimanche",
            "lunes",
            "martes",
            "jueves",
            "viernes",
            "domingo",
        ],
    ),
    (
        Class::Zone,
        &[
            "am", "pm", "utc", "gmt", "cet", "cest", "est", "edt", "cst", "cdt", "mst", "mdt",
            "pst", "pdt", "bst", "ist", "jst", "aest",
        ],
    ),
    (
        Class::TimeUnit,
        &[
            "second", "seconds", "minute", "minutes", "hour", "hours", "day", "days", "week",
            "weeks", "ms", "uhr",
        ],
    ),
    (
        Class::TimeLabel,
        &[
            "date",
            "time",
            "datetime",
            "today",
            "heute",
            "now",
            "timestamp",
            "clock",
            "tonight",
            "morning",
            "afternoon",
            "evening",
            "noon",
            "midnight",
            "yesterday",
            "tomorrow",
            "timezone",
            "uptime",
            "epoch",
            "unixtime",
            "current_time",
            "current_date",
            "local_time",
            "ts",
        ],
    ),
    (
        Class::RequestLabel,
        &[
            "request",
            "requestid",
            "request_id",
            "req",
            "req_id",
            "reqid",
            "nonce",
            "trace",
            "traceid",
            "trace_id",
            "span",
            "span_id",
            "spanid",
            "correlation",
            "correlationid",
            "correlation_id",
            "run",
            "run_id",
            "runid",
            "cch",
            "seed",
            "random",
            "session",
            "session_id",
            "sessionid",
            "uuid",
            "guid",
            "invocation",
            "signature",
            "salt",
            "cache_buster",
            "cachebuster",
            "buster",
            "traceparent",
            "idempotency",
            "conversation_id",
            "x_request_id",
            "message_id",
            "call_id",
            "tmp",
            "pid",
            "port",
            "hostname",
            "container",
            "temp",
            "scratch",
            "sandbox",
            "workdir",
            "thread_id",
            "hash",
            "digest",
            "token",
            "cc_version",
            "billing",
        ],
    ),
    (
        Class::IdLabel,
        &[
            "id",
            "ids",
            "key",
            "ref",
            "reference",
            "identifier",
            "header",
            "version",
            "build",
        ],
    ),
    (
        Class::ToolLabel,
        &[
            "tools",
            "functions",
            "parameters",
            "properties",
            "input_schema",
            "inputschema",
        ],
    ),
    (
        Class::Role,
        &[
            "user",
            "assistant",
            "human",
            "system",
            "model",
            "ai",
            "bot",
            "developer",
            "gpt",
            "instruction",
            "response",
            "observation",
            "tool",
            "ipython",
            "customer",
            "agent",
        ],
    ),
];

const COUNT: usize = {
    let mut count = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        count += GROUPS[group].1.len();
        group += 1;
    }
    count
};

/// All entries as numbers, ascending.
static SORTED: [(u128, Class); COUNT] = {
    let mut sorted = [(0u128, Class::Plain); COUNT];
    let (mut filled, mut group) = (0, 0);
    while group < GROUPS.len() {
        let (class, words) = GROUPS[group];
        let mut index = 0;
        while index < words.len() {
            let entry = (packed(words[index].as_bytes()), class);
            let mut at = filled;
            while at > 0 && sorted[at - 1].0 > entry.0 {
                sorted[at] = sorted[at - 1];
                at -= 1;
            }
            sorted[at] = entry;
            filled += 1;
            index += 1;
        }
        group += 1;
    }
    sorted
};

/// By first letter, the lengths that entries have: one bit each.
static LENGTHS: [u32; 32] = {
    let mut lengths = [0; 32];
    let mut group = 0;
    while group < GROUPS.len() {
        let words = GROUPS[group].1;
        let mut index = 0;
        while index < words.len() {
            let word = words[index].as_bytes();
            lengths[(word[0] & 31) as usize] |= 1 << word.len();
            index += 1;
        }
        group += 1;
    }
    lengths
};

/// Up to 16 letters as a number, small letters for capitals.
const fn packed(word: &[u8]) -> u128 {
    assert!(word.len() <= LEN_MAX, "an entry has at most 16 letters");
    let mut number = 0;
    let mut at = 0;
    while at < word.len() {
        number = number << 8 | word[at].to_ascii_lowercase() as u128;
        at += 1;
    }
    number
}

/// The class of `word`, where it has an entry. Short names of months and days must begin with a
/// capital: `may` and `sat` are other words more often.
pub(super) fn class(word: &[u8]) -> Option<Class> {
    let (first, len) = (*word.first()?, word.len());
    if len > LEN_MAX || LENGTHS[usize::from(first & 31)] & (1 << len) == 0 {
        return None;
    }
    let number = packed(word);
    let found = SORTED.binary_search_by_key(&number, |entry| entry.0).ok()?;
    let class = SORTED[found].1;
    let is_doubtful = len <= 5 && matches!(class, Class::Month | Class::Weekday);
    (!is_doubtful || first.is_ascii_uppercase()).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_entries_are_found_once() {
        for (class_of, words) in GROUPS {
            for word in *words {
                let title = word[..1].to_uppercase() + &word[1..];
                assert_eq!(class(title.as_bytes()), Some(*class_of), "{word}");
                assert_eq!(
                    class(word.to_uppercase().as_bytes()),
                    Some(*class_of),
                    "{word}"
                );
            }
        }
        assert!(SORTED.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn other_words_have_none() {
        for word in [
            "",
            "may",
            "sat",
            "sun",
            "mon",
            "use",
            "users",
            "a",
            "zzzzzzzzzzzzzzzzzzzz",
        ] {
            assert_eq!(class(word.as_bytes()), None, "{word}");
        }
        assert_eq!(class(b"monday"), Some(Class::Weekday));
    }
}
