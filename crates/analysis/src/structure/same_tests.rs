use super::*;

/// The change between two texts: all between what they begin and end with.
fn change(old: &str, new: &str) -> PromptChange {
    let (one, other) = (old.as_bytes(), new.as_bytes());
    let front = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let most = one.len().min(other.len()) - front;
    let back = one.iter().rev().zip(other.iter().rev());
    let back = back.take(most).take_while(|(one, other)| one == other).count();
    PromptChange { old: front..one.len() - back, new: front..other.len() - back }
}

fn system(text: &str) -> String {
    let user = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    format!("<|im_start|>system\n{text}<|im_end|>\n{user}")
}

fn check(old: &str, new: &str, expected: Option<(ChangeForm, Option<&str>)>) {
    let found = ChangePlace::of_same_content(old, new, &[change(old, new)]);
    let found = found.map(|place| (place.form, place.name().cloned()));
    let expected = expected.map(|(form, name)| (form, name.map(str::to_owned)));
    assert_eq!(found, expected, "{old}\n--- {new}");
}

#[test]
fn the_same_items_in_another_order_are_told_from_other_items() {
    let list = |items: [&str; 4]| {
        let items: String = items.iter().map(|item| format!("- {item}\n")).collect();
        system(&format!("Be kind.\n## Known facts\n{items}\nRules: none."))
    };
    let old = list(["Leeds", "York", "Hull", "Ely"]);
    let order = Some((ChangeForm::ListOrder, Some("Known facts")));
    check(&old, &list(["Ely", "York", "Leeds", "Hull"]), order);
    check(&old, &list(["Bath", "York", "Hull", "Ely"]), None);
    let line = |text: &str| system(&format!("Be kind.\nSettings: {text}\nRules: none."));
    let (old, new) = ("{\"a\": 1, \"b\": 2, \"c\": 3}", "{\"c\": 3, \"a\": 1, \"b\": 2}");
    let found =
        ChangePlace::of_same_content(&line(old), &line(new), &[change(&line(old), &line(new))]);
    assert_eq!(found.map(|place| place.form), Some(ChangeForm::FieldOrder));
}

#[test]
fn copies_of_a_text_and_other_characters_are_found() {
    let rule = "Stay within policy and answer in five sentences. ";
    let text = |count: usize| system(&format!("Be kind. {}End.", rule.repeat(count)));
    check(&text(1), &text(2), Some((ChangeForm::Repeated, None)));
    check(&text(3), &text(1), Some((ChangeForm::Repeated, None)));
    check(&text(0), &text(1), None);
    let (old, new) = (system("Say \u{201c}hello\u{201d} to all."), system("Say \"hello\" to all."));
    check(&old, &new, Some((ChangeForm::Characters, Some("Say"))));
    check(&system("Say hello to all."), &system("Say farewell to all."), None);
}

#[test]
fn messages_that_were_joined_are_history() {
    let talk = |between: &str| {
        format!(
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\none{between}two<|im_end|>\n\
             <|im_start|>assistant\ndone<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n\
             <|im_start|>assistant\n"
        )
    };
    let (split, joined) = ("<|im_end|>\n<|im_start|>user\n", "\n\n");
    let (old, new) = (talk(split), talk(joined));
    let at = old.find("two").expect("the second text") - split.len();
    let change = PromptChange { old: at..at + split.len(), new: at..at + joined.len() };
    let found = ChangePlace::of_same_content(&old, &new, &[change]).expect("a place");
    assert_eq!((found.form, found.detail), (ChangeForm::History, "messages were joined or split"));
}

#[test]
fn any_text_may_be_asked_about() {
    let texts =
        ["", "\u{e9}", "<|im_start|>", "<|im_start|>system\n- a\n- b", "[x bytes, ]", "a?b://"];
    for old in texts {
        for new in texts {
            for at in 0..6 {
                let change = PromptChange { old: at..at + 2, new: at..at + 3 };
                let _ = ChangePlace::of_same_content(old, new, &[change]);
            }
        }
    }
}
