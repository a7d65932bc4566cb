//! Characters that count time in Chinese, Japanese and Korean: 3月5日, 午後2時, 星期一, 14시 30분.
//!
//! Most of them are everyday words as well: 第1部分 is a part, 3点建议 three proposals, 十分 means
//! "very" and 上 "above". A unit counts only where it touches a figure that it can count and what
//! stands around makes both a time; the others only beside the one character that they go with.

use crate::text::word::Class;

/// Numerals; the place of one is its value, up to ten.
const NUMERALS: [&str; 11] = ["零", "一", "二", "三", "四", "五", "六", "七", "八", "九", "十"];

/// The zero of years that are spelled: 二〇二六年.
const ROUND_ZERO: &str = "〇";

/// Figures of a number that a unit counts: those of a year.
const DIGITS_MAX: usize = 4;

/// Days behind 星期 and 周, apart from the numerals up to six.
const SUNDAYS: &str = "日天";

/// Days in front of 曜 and 요.
const DAYS: &str = "月火水木金土日월화수목금토일";

/// Characters that turn the hour, day or month in front of them into a span or something else.
const SPANS: &str = "間间段代效候以内內目本刊";

/// Characters in front of an hour.
const BEFORE_HOURS: &str = "午晚早晨夜朝日号號";

/// Characters behind 点 that confirm an hour.
const BEHIND_HOURS: &str = "半整钟鐘";

/// Characters behind 周一 that make it "once a week".
const TIMES_A_WEEK: &str = "次个個些共";

/// Classifies the character at `at`, `len` bytes long, if it is a sign or numeral of time.
pub(super) fn class(text: &[u8], at: usize, len: usize) -> Option<Class> {
    let (front, behind) = (&text[..at], &text[at + len..]);
    let character = std::str::from_utf8(&text[at..at + len]).ok()?;
    let (before, next) = (last(front), first(behind));
    let is_sign = match character {
        "年" | "년" | "月" | "월" | "日" | "일" | "号" | "號" | "時" | "时" | "시" | "点"
        | "點" | "分" | "분" | "秒" | "초" => {
            Figure::before(front).is_some_and(|figure| figure.is_counted(character, behind))
                || (character == "일" && before == "요")
        }
        "曜" | "요" => is_any(DAYS, before),
        "星" => next == "期" && is_day(&behind[next.len()..]),
        "期" => before == "星" && is_day(behind),
        "周" | "週" => is_day(behind) || is_any("上下本", before),
        "午" => is_any("上下正", before) || is_any("前後后", next),
        "오" => is_any("전후", next),
        _ => false,
    };
    if is_sign {
        return Some(Class::TimeSign);
    }
    let tells_apart = match character {
        "上" | "下" => is_any("午周週", next),
        "前" | "後" | "后" => before == "午",
        "전" | "후" => before == "오",
        _ if is_any(DAYS, character) && is_any("曜요", next) => true,
        _ if is_any(SUNDAYS, character) => is_any("期周週", before),
        _ => numeral(character).is_some(),
    };
    tells_apart.then_some(Class::Spelled)
}

/// The value of a numeral.
fn numeral(character: &str) -> Option<u32> {
    let value = NUMERALS.iter().position(|numeral| *numeral == character);
    value.map(|value| value as u32).or((character == ROUND_ZERO).then_some(0))
}

fn is_any(characters: &str, character: &str) -> bool {
    !character.is_empty() && characters.contains(character)
}

/// Whether a day of the week stands here, as numbered ones are: 一, 日.
fn is_day(text: &[u8]) -> bool {
    let day = first(text);
    let is_numbered = numeral(day).is_some_and(|value| (1..=6).contains(&value));
    let is_named = is_numbered || is_any(SUNDAYS, day);
    is_named && !is_any(TIMES_A_WEEK, first(&text[day.len()..]))
}

/// A number in front of a unit.
struct Figure<'a> {
    value: u32,
    digits: usize,
    is_spelled: bool,
    /// The character in front of it, over one space.
    before: &'a str,
}

impl<'a> Figure<'a> {
    /// The one that `front` ends with: at most four figures or numerals.
    fn before(front: &'a [u8]) -> Option<Self> {
        let tail = front.iter().rev();
        let figures = tail.take_while(|byte| byte.is_ascii_digit()).count();
        let (value, digits, rest) = match figures {
            0 => spelled(front),
            1..=DIGITS_MAX => {
                let (rest, number) = front.split_at(front.len() - figures);
                let value = |sum: u32, digit: &u8| sum * 10 + u32::from(digit - b'0');
                (number.iter().fold(0, value), figures, rest)
            }
            _ => return None,
        };
        let rest = rest.strip_suffix(b" ").unwrap_or(rest);
        let before = last(rest);
        // The third part, and 1.5: no times.
        let is_none = matches!(before, "第" | "." | ",");
        (!is_none && (1..=DIGITS_MAX).contains(&digits)).then_some(Self {
            value,
            digits,
            is_spelled: figures == 0,
            before,
        })
    }

    /// Whether `unit` counts it, with `behind` behind that.
    fn is_counted(&self, unit: &str, behind: &[u8]) -> bool {
        let next = first(behind);
        let is_of_day = is_any("月월", self.before);
        let goes_on = is_digit(next) || numeral(next).is_some();
        match unit {
            "年" | "년" => {
                let is_era = self.digits <= 2 && is_any("和成", self.before);
                is_era || (self.digits == 4 && (1900..2100).contains(&self.value))
            }
            "月" | "월" => (1..=12).contains(&self.value) && !is_any(SPANS, next),
            "日" | "일" => {
                let is_alone = !self.is_spelled && !is_any(SPANS, next);
                (1..=31).contains(&self.value) && (is_of_day || is_alone)
            }
            "号" | "號" => (1..=31).contains(&self.value) && is_of_day,
            "時" | "时" | "시" => {
                let is_hour = goes_on || next == "半" || is_any(BEFORE_HOURS, self.before);
                let is_alone = !self.is_spelled && !is_any(SPANS, next);
                self.value <= 24 && (is_hour || is_alone)
            }
            "点" | "點" => {
                let is_hour = is_any(BEHIND_HOURS, next) || is_any(BEFORE_HOURS, self.before);
                self.value <= 24 && (is_hour || counts_minutes(behind))
            }
            "分" | "분" => self.value < 60 && is_any("時时시点點", self.before),
            "秒" | "초" => self.value < 60 && is_any("分분", self.before),
            _ => false,
        }
    }
}

/// The value and length of the numerals that `front` ends with, at most one too many, and what
/// stands in front of them.
fn spelled(mut front: &[u8]) -> (u32, usize, &[u8]) {
    let (mut value, mut place, mut digits) = (0, 1, 0);
    while digits <= DIGITS_MAX
        && let Some(number) = numeral(last(front))
    {
        (value, place) = match number {
            10 => (value + 10, 10),
            // What stands in front of a ten says how many: 二十 is 20.
            _ if place == 10 && value >= 10 => (value - 10 + number * 10, 100),
            _ => (value + number * place, place * 10),
        };
        front = &front[..front.len() - last(front).len()];
        digits += 1;
    }
    (value, digits, front)
}

/// Whether minutes follow an hour: `30分`, `三十分`.
fn counts_minutes(mut text: &[u8]) -> bool {
    let mut count = 0;
    loop {
        let next = first(text);
        if !is_digit(next) && numeral(next).is_none() {
            return count > 0 && next == "分";
        }
        (text, count) = (&text[next.len()..], count + 1);
        // Minutes have at most three numerals: longer figures count something else.
        if count >= DIGITS_MAX {
            return false;
        }
    }
}

fn is_digit(character: &str) -> bool {
    matches!(character.as_bytes(), [digit] if digit.is_ascii_digit())
}

/// The first character of what is a text; nothing at its end.
fn first(text: &[u8]) -> &str {
    let behind = text.iter().skip(1).take_while(|byte| is_inside(**byte));
    let len = text.len().min(1 + behind.count());
    std::str::from_utf8(&text[..len]).unwrap_or_default()
}

/// The last character of what is a text; nothing at its start.
fn last(text: &[u8]) -> &str {
    let inside = text.iter().rev().take_while(|byte| is_inside(**byte));
    let start = text.len().saturating_sub(1 + inside.count());
    std::str::from_utf8(&text[start..]).unwrap_or_default()
}

/// Whether a byte continues a character.
fn is_inside(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The characters of `text` that count time, in order.
    fn signs(text: &str) -> String {
        let is_sign = |at: usize, len| class(text.as_bytes(), at, len) == Some(Class::TimeSign);
        let characters = text.char_indices();
        let characters = characters.filter(|(at, character)| is_sign(*at, character.len_utf8()));
        characters.map(|(_, character)| character).collect()
    }

    #[test]
    fn units_of_a_plausible_time_count() {
        for (text, expected) in [
            ("2026年11月23日", "年月日"),
            ("3月5日", "月日"),
            ("令和8年3月5日(木)", "年月日"),
            ("14時30分", "時分"),
            ("14时30分05秒", "时分秒"),
            ("下午3点", "午点"),
            ("3点30分", "点分"),
            ("三点半", "点"),
            ("午後2時", "午時"),
            ("十一月二十三日", "月日"),
            ("二〇二六年三月五日", "年月日"),
            ("3月5号", "月号"),
            ("今天是星期一。", "星期"),
            ("周日", "周"),
            ("上周", "周"),
            ("月曜日", "曜"),
            ("2026년 11월 23일 14시 30분 5초", "년월일시분초"),
            ("월요일 오후", "요일오"),
            ("本日は23日です", "日"),
            ("5日前", "日"),
        ] {
            assert_eq!(signs(text), expected, "{text}");
        }
    }

    #[test]
    fn the_same_characters_elsewhere_do_not() {
        for text in [
            "第1部分",
            "文档3要点",
            "以下3点建议",
            "第3点",
            "十分重要",
            "一点",
            "评分为5分",
            "3.5分",
            "30秒",
            "3時間",
            "5日間",
            "第2年",
            "3年",
            "13月",
            "45日",
            "一日三餐",
            "每周一次",
            "上下文",
            "以前と以後",
            "星空",
            "期末",
            "日本語",
            "前後",
            "3분",
            "오늘",
            "중요한",
            "99999年",
        ] {
            assert_eq!(signs(text), "", "{text}");
        }
    }

    #[test]
    fn numerals_are_read() {
        for (text, expected) in [
            ("三", 3),
            ("十", 10),
            ("十一", 11),
            ("二十", 20),
            ("二十三", 23),
            ("二零二六", 2026),
            ("二〇二六", 2026),
            ("2026", 2026),
            ("07", 7),
        ] {
            let figure = Figure::before(text.as_bytes()).expect("a number");
            assert_eq!(figure.value, expected, "{text}");
        }
        assert!(Figure::before(b"12345").is_none());
        assert!(Figure::before("五".repeat(5).as_bytes()).is_none());
        assert!(Figure::before(b"").is_none());
    }
}
