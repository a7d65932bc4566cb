//! Templates of users' sentences, per intent and per cue.
//!
//! The slots are the conversation's subject (`{topic}`, `{other}`, `{thing}`), a person, a number
//! and a property; all of them fit every intent, so that the subject alone tells nothing.

use super::signal::{Cue, Intent};

/// The templates of an intent, each as likely.
pub(super) fn of_intent(intent: Intent) -> &'static [&'static str] {
    match intent {
        Intent::Closing => CLOSING,
        Intent::Fact => FACT,
        Intent::Chore => CHORE,
        Intent::LastThing => LAST_THING,
        Intent::Exploring => EXPLORING,
        Intent::Advice => ADVICE,
        Intent::Debugging => DEBUGGING,
        Intent::Drafting => DRAFTING,
        Intent::Project => PROJECT,
        Intent::Game => GAME,
    }
}

/// The side remarks of a cue; none where nothing is said.
pub(super) fn of_cue(cue: Cue) -> &'static [&'static str] {
    match cue {
        Cue::Silent => &[],
        Cue::More => MORE,
        Cue::Done => DONE,
    }
}

const CLOSING: &[&str] = &[
    "[thanks|thank you|many thanks|thx] [so much|a lot|very much|], [that|this] [was|is] \
     [really|very|extremely|] helpful [for my {thing}|].",
    "[perfect|great|awesome|excellent], [thanks|thank you] [for the help|for your help|for \
     everything] [with {topic}|with the {thing}|].",
    "[bye|goodbye|see you|good night] [and|,] thanks [again|for your time|for the {thing}] [!|.]",
    "[ok|okay|alright|great], [that answers|this answers] [my question|everything|all my \
     questions] [about {topic}|], [thanks|thank you|goodbye|bye].",
    "thanks, [I got|I have|now I have] [what I needed|everything I needed|all I need] [for the \
     {thing}|about {topic}|].",
    "[wonderful|perfect|brilliant|cool], [I appreciate|I really appreciate] [it|the help|your \
     patience|all the advice] [on {topic}|]. [bye|goodbye|have a nice day|take care] [!|.]",
    "[you have been|you've been] [very|so|incredibly] helpful with [{topic}|the {thing}], [thank \
     you|thanks a lot|have a good day] [!|.]",
    "[it works|it worked|that did it|that solved it], [thanks|thank you so much|many thanks] for \
     [the {thing}|your help|explaining {topic}].",
    "[have a great|have a nice|have a lovely] [day|evening|weekend] and [thanks|thank you] [for \
     all the help|for the {thing}|again] .",
    "[I am|I'm] [happy|satisfied|very pleased] with [the {thing}|that|this {thing}], [thanks|thank \
     you] and [goodbye|bye bye|see you].",
    "[good|ok|nice], I will [leave it at that|stop here|log off now|go now], [thanks|thank you] \
     for [the help|your answers|your time].",
    "[thank you|thanks] [kindly|again|for everything], {person} will [love|like|be happy about] \
     [this|the {thing}]. [goodbye|bye|cheers] [!|.]",
];

const FACT: &[&str] = &[
    "what [is|was] the [exact|official|average|usual] [name|price|date|year|number|size] of \
     {topic}?",
    "[quick question|just a quick question|short question]: [who invented|when was|what is the \
     meaning of|where does one find] {topic}?",
    "[define|briefly define|give the definition of|give me a one sentence definition of|state the \
     definition of] [the term|the word|] {topic} [as used in a {thing}|].",
    "how [many|much] {topic} [are there|is there|is that] in [{number} minutes|one year|a \
     standard {thing}]?",
    "[who|which person] [invented|discovered|first described|came up with] {topic}?",
    "[when|in which year|on what date] [was {topic}|did {topic} get] [invented|introduced|first \
     recorded|discovered]?",
    "what does the [word|term|abbreviation|expression] [{topic}|in the {thing}] [mean|stand for]?",
    "[is it true|true or false|yes or no]: {topic} [was invented before|came before|costs less \
     than|means the same as] {other}?",
    "[what|which] [country|city|year] [is|was] {topic} [originally from|first mentioned in|best \
     known for]?",
    "[just tell me|tell me only|simply state|name] the [definition|year|exact name|official \
     number|origin|inventor] of {topic}.",
    "[what is|tell me|state] the [world record|capital|boiling point|unit|formula] [of|for|in] \
     {topic} [, in one word|].",
    "what is the [synonym|plural|spelling|opposite|short form] of [the word|] {topic}?",
    "how [old|long|big|heavy|expensive] is [a|the] [typical|average|usual] {thing} [about \
     {topic}|]?",
];

const CHORE: &[&str] = &[
    "[translate|please translate] [this sentence|the following sentence|this line|the line below] \
     [about {topic}|] into [Spanish|French|German|Italian|Japanese].",
    "[correct|fix|check] the [spelling|grammar|punctuation|typos] [in this sentence|of the \
     following sentence|in the text below]: [we|they|I] has [saw|went to] {topic} yesterday.",
    "convert [{number} miles|{number} pounds|{number} dollars|{number} ounces] [to kilometres|to \
     kilograms|to euros|to grams] [for my {thing}|].",
    "[summarize|sum up] [this paragraph|the following paragraph|the text below] [on {topic}|] in \
     [one sentence|two sentences|{number} words].",
    "[sort|alphabetize|put in order] [this list|the following list|these words]: {topic}, {other}, \
     {person}.",
    "[rephrase|reword|paraphrase] [this sentence|the following sentence|this line]: the {thing} \
     is about {topic}.",
    "[extract|list] the [names|dates|keywords|numbers] from [this text|the following text|the \
     text below]: {person} bought {number} {topic}.",
    "[classify|label] [this sentence|the following sentence|this review] as [positive or \
     negative|spam or not|formal or informal]: I found {topic} {quality}.",
    "[translate|please translate] [the following|this] [text|paragraph|word] to \
     [English|Portuguese|Dutch|Chinese]: {topic}.",
    "[remove|strip] the [duplicates|line breaks|extra spaces] from [this list|the following \
     text|the text below]: {topic}, {topic}, {other}.",
    "[generate|give me|make] a [title|headline|caption|hashtag] for [a {thing}|the following \
     text] about {topic}.",
    "[count|compute|calculate] the [words|sum|percentage|average] [in this sentence|of the \
     following numbers]: {number}, {number}, {number}.",
];

const LAST_THING: &[&str] = &[
    "[one last thing|one last question|one final thing|last question], [what about|how about|do I \
     need] {topic}?",
    "[finally|lastly|to finish|to wrap up], [give me|write|add] [a|one] [short|final] [line|note|\
     summary] [about|on] {topic}.",
    "before I [go|leave|log off|finish], [what is|tell me about|remind me of] {topic}?",
    "[last|final] [request|question|one]: [put|bring] the [whole|complete|finished] {thing} \
     together [for me|with {topic}|].",
    "and [finally|lastly], [can|could|would] you [wrap up|finish|close] the {thing} with \
     [{topic}|a line on {topic}]?",
    "[only|just] one [more|final|last] [question|thing] and [I am|I'm] [gone|finished|off]: \
     [what is|how about] {topic}?",
    "[to conclude|in closing|to close this], [sum up|wrap up|recap] [what we said|everything] \
     about {topic}.",
    "[I have to go|I must leave|I need to leave] [soon|now|in a minute], so [finally|lastly|just] \
     [tell me about|finish with] {topic}.",
    "[let's|let us] [finish|end|conclude|wrap up] with [a|one] [final|last] [word|remark|look] \
     [on|at] {topic}.",
    "[my last|the last|the final] question [today|for today|for now] [is about|concerns] {topic}.",
];

const EXPLORING: &[&str] = &[
    "[I am|I'm] [curious|wondering] [about|what people think about] {topic}, [tell me \
     more|where does it come from|what makes it {quality}].",
    "[tell me|explain to me] [more|something interesting|something] about {topic} and [why|how] \
     it [matters|became {quality}|relates to {other}].",
    "why do [people|so many people|some people|experts|critics] [find|consider|call] {topic} \
     {quality}, and how does it [relate|compare|connect] to {other} [historically|in practice|]?",
    "how [does|did] {topic} [work|develop|change over time|influence {other}] [in general|in \
     depth|really]?",
    "[help me understand|I want to understand|I would like to understand] [the ideas behind|the \
     reasons for|how experts see] {topic}.",
    "what [are|would be] the [differences|connections|similarities] between {topic} and {other}, \
     [and why|in your view|and which matter]?",
    "[I have been reading|I keep reading|I just read] about {topic} and [wonder|am curious|want \
     to learn] [how it works|why it is {quality}|where it leads].",
    "[teach me|introduce me to] [the basics of|the background of|] {topic} [like I am a \
     beginner|from the beginning|in a way that I understand].",
    "[what|which] [theories|schools of thought|perspectives|debates] are there [on|about|around] \
     {topic}?",
    "[interesting|fascinating], and what [happens|would happen|follows] [if|when] {topic} meets \
     {other}?",
    "[explore|discuss] [with me|] [the history|the future|both sides] of {topic} [and {other}|].",
];

const ADVICE: &[&str] = &[
    "[should I|do you think I should] [choose|go for|pick] {topic} or [rather|] {other}? I am \
     [torn|undecided|not sure] [between them|yet|].",
    "[I am|I'm] [struggling|unsure|worried] [with|about] {topic} and [need|would like] [some|your] \
     advice [on it|].",
    "what would you [recommend|advise|suggest] [to someone|to a person|if somebody] who [struggles \
     with|is new to|is afraid of] {topic}?",
    "{person} and I [disagree|argue|keep arguing] about {topic}, [what should I do|how do I handle \
     that|whose side would you take]?",
    "[my situation|here is my situation|my problem]: [I have|we have] {topic} but {person} [wants|\
     prefers] {other}. [what would you do|what do you advise|how should I decide]?",
    "[how do I|how should I|how can I] [decide|choose|decide wisely] between {topic} and {other}?",
    "[give me|I need|I could use] [honest|some|your] advice [about|on|regarding] {topic}, \
     [I feel|I am] [stuck|torn|overwhelmed].",
    "[is it|would it be] [worth it|a good idea|wise] to [get into|switch to|invest in] {topic} at \
     [my age|age {number}|this point]?",
    "[I feel|I am feeling|lately I feel] [stuck|overwhelmed|anxious|unsure] [about|because of] \
     {topic}. [what do you recommend|what should I do]?",
    "[what are|weigh] the [pros and cons|risks|trade-offs] of {topic} [for me|in my situation|for \
     someone like me], [given|considering] {other}?",
];

const DEBUGGING: &[&str] = &[
    "[I get|I am getting|I keep getting] an error [with|in|from] [the {thing}|{topic}]: [expected \
     {number} but found none|step {number} failed|it does not respond].",
    "[it still|that still|this still] [fails|does not work|is broken|gives the same error] [when I \
     try {topic}|with {topic}|].",
    "[why|any idea why] [does|is] [my|the] {thing} [not working|fail|failing|broken|wrong] when \
     [I add {topic}|{topic} comes in]?",
    "[that|this] [did not|didn't] [fix|solve|help with] [it|the problem|the issue], [now|instead] \
     {topic} [fails|is broken|looks wrong] [too|].",
    "[something|there is something] [wrong|broken|off] [with|in] [my|the] {thing}, {topic} [fails|\
     does not work|keeps failing] [again|after {number} tries|].",
    "[the problem|the issue|the error|the bug] [with {topic}|] [persists|is still there|came \
     back|is not fixed], [what now|what next|what else can I try]?",
    "[help me|please help me|can you help me] [fix|debug|troubleshoot|repair] [my|the|this] \
     {thing}, {topic} [does not work|fails|is broken].",
    "[same error|same problem|still the same issue] [as before|again|], [I tried|even after] \
     {other} [too|and {topic}|].",
    "[I tried|I have tried|I already tried] what you [said|suggested] [with|for] {topic} but [it \
     fails|it does not work|the error remains|nothing changed].",
    "now [it fails|it breaks|I get another error|I get a different error] [at|in] [step \
     {number}|the {thing}|{topic}].",
    "[troubleshooting|debugging] {topic}: [the {thing} fails|nothing works|it breaks|the error \
     appears] [every time|after {number} seconds|at random].",
];

const DRAFTING: &[&str] = &[
    "[make|can you make] [it|the {thing}|this draft] [shorter|longer|more formal|funnier|more \
     {quality}] [and mention {topic}|].",
    "[rewrite|revise|rework] the [first|second|third|last] [paragraph|section|part] [of the \
     {thing}|] [so that it covers|with more about|to focus on] {topic}.",
    "[I like|not bad, I like] the [beginning|tone|ending], but [change|revise|improve] [the \
     part|the section] about {topic}.",
    "now [add|include|insert] [a paragraph|a section|another version|something] [on|about] {topic} \
     [to the draft|to the {thing}|].",
    "[give me|write|try] [another|a second|a new|a different] [version|draft|variant] of the \
     {thing} [with|that mentions] {topic}.",
    "[write|draft] a [first|rough] [version|draft] of [a|the|my] {thing} about {topic}, [we|I] \
     [will|can] [revise|edit|improve] it.",
    "[too|it is too|the draft is too] [long|dry|vague|{quality}], [revise|rewrite|rework] it \
     [around|with] {topic}.",
    "[replace|swap] {topic} [with|for] {other} in the [draft|second paragraph|{thing}] and [keep|\
     leave] the rest.",
    "[expand|extend|develop] the [draft|paragraph|section] [on|about] {topic} [by {number} \
     words|with an example|].",
    "[the tone|the wording|the style] of the [{thing}|draft] [is not right|needs work|should be \
     more {quality}], [revise|edit|rewrite] it [again|].",
    "[better|closer|good start], now [revise|polish|tighten|edit] the [part|paragraph|section] \
     [on|about] {topic}.",
];

const PROJECT: &[&str] = &[
    "[I want|I would like|I am going|I plan] to [build|create|develop|set up] a [complete|large|\
     new|{quality}] {thing} [around|about|for] {topic}, [where do we start|let's start|let's begin \
     with a plan].",
    "[let's|let us] [build|plan|design|develop] a {thing} [for|about] {topic} step by step, [start \
     with the first step|begin with an outline].",
    "[we are|I am|my team is] [starting|launching|planning] a [big|long|new] project [on|about] \
     {topic} and [need|want] to [plan|build|structure] [the {thing}|it].",
    "[outline|plan] [a|the] [{number} week|{number} part|{number} chapter] project [on|about] \
     {topic}, [we will|then we] [go through|build] each [part|step].",
    "[help me|can you help me] [build|plan|develop|structure] [my|a] {thing} [from scratch|from \
     the ground up|step by step] [for|about] {topic}.",
    "[first step|step one|phase one] of [my|our] project: [build|plan|design] the [structure|\
     outline|foundation] of the {thing} [on|about] {topic}.",
    "[I am|I'm] [writing|building|developing|designing] [a whole|an entire|a big] {thing} \
     [series|system|plan|] about {topic}, [chapter|part|module] [one|1] [covers|is about] {other}.",
    "[act as|be] my [partner|co-author|project manager] and [plan|build|develop] [a|the] {thing} \
     [on|about] {topic} with me, [step by step|part by part].",
    "[create|develop|design] a [roadmap|project plan|structure|curriculum] for [learning|building|\
     mastering] {topic}, [starting with|beginning with] [step one|the first part].",
    "[our goal|my goal|the goal] is to [build|develop|launch] a [complete|{quality}] {thing} for \
     {topic} [over the next {number} weeks|step by step].",
];

const GAME: &[&str] = &[
    "[let's|let us] play a game [about|with] {topic}: [you ask|I ask] [a question|questions] and \
     [I answer|you answer], [one at a time|ready].",
    "[pretend|imagine|act as if] you are {person}, an expert [on|in] {topic}, and [interview me|\
     I interview you|talk to me in that role].",
    "[quiz me|test me] [on|about] {topic}, [one question at a time|{number} questions], [wait for \
     my answer|I answer each] .",
    "[role play|let's role play|roleplay]: you are [a|the] [seller|teacher|guide|detective] \
     [of|with] {topic}, I am {person}. [you start|you begin|I start].",
    "[play|stay in] the [role|character] of {person} [and|who loves {topic}] [ask me|answer me] \
     [one question at a time|in character].",
    "[your turn|my turn|next round|next question], [I choose|I say|my answer is] [{topic}|{other}|\
     number {number}].",
    "[start|begin|run] a [text adventure|story game|guessing game|quiz] [set in|about] [the world \
     of|] {topic}, [I choose|I decide|I answer] [each turn|what happens].",
    "[I am|I play] {person} [and|,] [you are|you play] {other}, [continue|start] the [scene|story|\
     role play] [about|with] {topic}.",
    "[ask me|give me] [the next|another|one] [question|riddle|round] [on|about] {topic} and [wait \
     for my answer|tell me my score].",
    "my [guess|answer|move] is {topic}, [next question|what is my score|your turn|next round] .",
];

const MORE: &[&str] = &[
    "[I will|I'll] [send you|paste|share] the [rest|next part|other half] [after that|afterwards|\
     next].",
    "[then|after that|afterwards] [we can|we will|I want to] [continue|go on|move on] with \
     the [next part|rest|details].",
    "[I have|there are] [more|several|many] [questions|points|follow-up questions] [coming|to \
     follow|after this].",
    "[this is|that is] [only|just] the [first|beginning] of [several|many] [parts|questions|\
     steps].",
    "[wait for|ask me for] [the next part|more details|the rest] before you [continue|go on].",
    "[to begin with|to start with|for a start], [more|the rest] [follows|will follow|comes later].",
    "[we will|we'll] [continue|come back to it|keep going|go deeper] [afterwards|next|later in \
     this chat].",
];

const DONE: &[&str] = &[
    "[that is|that's|that will be] [all|everything] [I need|I need today|for now|for today], \
     [thanks|nothing else|nothing more|then I am done].",
    "[I only|I just] need [this|that|this one answer], nothing [else|more] [after this|today|], \
     [thanks|that's all|then I'm done].",
    "[after this|after that|then] [I am|I'm] [done|finished] [for today|], [nothing else|nothing \
     more|that's all|that is all].",
    "[only|just] the [answer|result], [that's all|that is all], [nothing more|nothing else|then \
     I'm done|thanks].",
    "[this is|that is] my [last|final|only] [question|request] [for today|today|], [then I am \
     done|nothing else after this|that's all].",
    "[then|with that] [I am|I'm] [finished|done] and [log off|close this chat|need nothing \
     else|that is all].",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::planted::grammar::forms;

    #[test]
    fn each_intent_has_hundreds_of_forms_before_its_slots_are_filled() {
        for intent in Intent::ALL {
            let count: u64 = of_intent(intent).iter().map(|t| forms(t)).sum();
            assert!(count >= 300, "{intent:?}: {count}");
        }
        for cue in [Cue::More, Cue::Done] {
            let count: u64 = of_cue(cue).iter().map(|t| forms(t)).sum();
            assert!(count >= 80, "{cue:?}: {count}");
        }
    }
}
