//! Whether two tokenizers agree, asked on text that tells them apart.
//!
//! Implementations differ where Unicode is subtle (classes, normal forms, folding), where the
//! pre-tokenizer's expression looks ahead (runs of white space), and around added tokens (white
//! space that they swallow, words that they must not split). The probe holds a sample of each;
//! added tokens come from the tokenizer itself.
//!
//! Agreement here is evidence, not proof: `tokenizer`'s tests compare megabytes of real text.

/// A text that any tokenizer has tokens for.
pub(crate) const PLAIN: &str = "The quick brown fox jumps over the lazy dog.";

/// Samples, each encoded alone and all together.
const SAMPLES: &[&str] = &[
    "",
    " ",
    "The quick brown fox jumps over the lazy dog. It's 7:45 p.m., isn't it?",
    "WE'LL see; I'D say they'Re THEY'VE o'clock rock'n'roll ''quoted''",
    "  two  three   spaces\tand\ttabs \t mixed \n\n\n lines",
    "\r\n\r\nlines of Windows\r\n \r old \u{b}\u{c}end   ",
    "fn main() {\n    let x: Vec<u8> = vec![0xFF; 1_000];\n\tprint!(\"{:?}\", x); // ok?\n}\n\n\n",
    "def f(a, *b, **c):\n        return {'k': a[::-1], \"n\": 3e-10} if a else None\n",
    "<div class=\"a b\" id='c'>&amp;&nbsp;</div>\\n\\t\\\\ C:\\dir\\file.txt /usr:~ $HOME `ls`",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 ١٢٣ ४५६ ½ Ⅷ ² x² 10⁻³",
    "https://example.com/path?query=a%20b&x=1#frag user@example.org +1-555-0100 #tag @name",
    "你好，世界！今天天气怎么样？日本語のテキスト、カタカナ。한국어 문장입니다. 漢字㐀𠀀",
    "Привет, мир! Съешь ещё этих мягких французских булок. Ёлка ЁЖ",
    "Українська ґ",
    "Ελληνικά σας ΣΑΣ; עברית עם ניקוד שָׁלוֹם; العربيّة؛",
    "हिन्दी में लिखा ไทยไม่มีวรรค தமிழ் ಕನ್ನಡ ဗမာ ខ្មែរ",
    "cafe\u{301} café A\u{30a} Å ﬁ ﬀ Ǆ ǆ İ ı ß ẞ ſ K",
    "e\u{323}\u{302} q\u{307}\u{323} \u{1e9b}\u{323}",
    "😀 👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ ☺ ✔︎ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🎉🎉🎉",
    "\u{a0}nbsp\u{a0}\u{2009}thin\u{3000}wide\u{200b}zero",
    "\u{200d}join\u{feff}bom\u{2028}line\u{85}next\u{ad}soft",
    "\u{0}nul\u{1}\u{1b}[31mred\u{7f}del \u{fffd} \u{fffe} \u{e000} \u{10ffff}",
    "“quotes” ‘single’ «guillemets» — – … • † ‡ § ¶ © ® ™ € £ ¥ ± × ÷ ≠ ≤ ∑ ∫ √ ∞ → ⇒ ∀x∈ℝ",
    "!!! ??? ... --- === *** ___ ### ((( ))) [[[ ]]] {{{ }}} <<< >>> ||| &&& %%% ^^^ ~~~ ```",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa                                        ........",
    "antidisestablishmentarianism Donaudampfschifffahrtsgesellschaft camelCaseWord snake_case_word",
    "<s> </s> <unk> <pad> <|endoftext|> <|im_start|>user\nhi<|im_end|>",
    "<|eot_id|> [INST] [/INST] <0x0A>",
    "▁ ▁word Ġ Ġword Ċ ĉ ## ##ing </w> @@",
];

/// Added tokens asked about. Some vocabularies reserve thousands that differ in a number only.
const ADDED_TOKENS_MAX: usize = 256;

/// Texts to ask about a tokenizer whose added tokens are `added`.
pub(crate) fn texts<'a>(added: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut texts: Vec<String> = SAMPLES.iter().map(|&sample| sample.to_owned()).collect();
    texts.push(SAMPLES.concat());
    texts.push(SAMPLES.join("\n"));
    texts.extend(added.take(ADDED_TOKENS_MAX).map(in_context));
    texts
}

/// `token` beside letters, white space, punctuation and itself.
fn in_context(token: &str) -> String {
    format!("{token}a{token}  b \n{token} \n c{token}{token}\t{token}.{token}é {token}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_tokens_are_asked_about_in_every_neighbourhood() {
        let texts = texts(["<x>"].into_iter());
        let context = texts.last().unwrap();
        for expected in ["a<x>", "<x>a", " \n<x> ", "<x><x>", "\t<x>."] {
            assert!(context.contains(expected), "{expected:?}");
        }
        assert_eq!(texts.len(), SAMPLES.len() + 3);
    }
}
