// Parallel rollouts: one session is set up, and copies of it try different actions at the same time. Each copy has a score; the best wins.
// COVE_ROLLOUTS sets how many copies there are, up to 100.
import { Cove } from "@cove/sdk";

const COUNT = Number(process.env["COVE_ROLLOUTS"] ?? 8);

await using session = await new Cove().session("base", { labels: { example: "rollouts" } });
await session.exec("export TARGET=42; echo 'environment ready' > /workspace/state", { check: true });

const forks = await session.fork({ count: COUNT });
try {
  const scores = await Promise.all(
    forks.map(async (fork, action) => {
      // The policy: each rollout takes another action in its own copy.
      const { output } = await fork.exec(`guess=$(( ${action} * 6 )); echo $guess >> /workspace/state; echo $(( guess > TARGET ? guess - TARGET : TARGET - guess ))`, { check: true });
      return { action, distance: Number(output) };
    }),
  );
  scores.sort((a, b) => a.distance - b.distance);
  console.log(`${scores.length} rollouts; the best action is ${scores[0]?.action} with distance ${scores[0]?.distance}`);
} finally {
  await Promise.all(forks.map((fork) => fork.destroy()));
}
console.log(`the session itself is as it was: ${(await session.exec("cat /workspace/state")).output.trim()}`);
