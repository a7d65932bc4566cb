// The `@anthropic-ai/sdk` package against messages and count_tokens.

import Anthropic from "@anthropic-ai/sdk";
import { options, require, version } from "./command_line.mjs";

const { baseUrl, model, apiKey } = options();
const client = new Anthropic({ baseURL: baseUrl, apiKey, maxRetries: 0 });
const conversation = {
  model,
  system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
  messages: [
    { role: "user", content: "Oslo?" },
    {
      role: "assistant",
      content: [{ type: "tool_use", id: "t1", name: "weather", input: { city: "Oslo" } }],
    },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "t1", content: "rain" }] },
  ],
  tools: [{ name: "weather", input_schema: { type: "object", properties: {} } }],
};

const sum = (usage) =>
  usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);

const counted = await client.messages.countTokens(conversation);
const whole = await client.messages.create({ ...conversation, max_tokens: 8 });
require(sum(whole.usage) === counted.input_tokens, "countTokens is what usage sums to");
const stream = client.messages.stream({ ...conversation, max_tokens: 8 });
const kinds = [];
for await (const event of stream) kinds.push(event.type);
const final = await stream.finalMessage();
require(kinds[0] === "message_start" && kinds.at(-1) === "message_stop", `events: ${kinds}`);
require(final.usage.output_tokens > 0 && final.stop_reason !== null, "usage of a stream");
console.log(`ok @anthropic-ai/sdk ${version("@anthropic-ai/sdk")}: messages, stream, countTokens`);
