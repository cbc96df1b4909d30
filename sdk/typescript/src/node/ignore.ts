// Ignore files, with the rules of .gitignore: the last pattern that matches decides, `!` takes one back, a pattern with a slash counts
// from the directory of its file, one that ends in a slash is for directories, and nothing below an ignored directory is looked at.

interface Rule {
  matches: RegExp;
  isNegated: boolean;
  onlyDirectories: boolean;
}

export class IgnoreRules {
  readonly #rules: Rule[];

  private constructor(rules: Rule[]) {
    this.#rules = rules;
  }

  static readonly none = new IgnoreRules([]);

  /** These rules and those of a text that lies in `directory`, which is relative and ends in a slash, or is empty. */
  with(text: string, directory: string): IgnoreRules {
    const added = text.split(/\r?\n/).flatMap((line) => parse(line, directory) ?? []);
    return added.length === 0 ? this : new IgnoreRules([...this.#rules, ...added]);
  }

  ignores(path: string, isDirectory: boolean): boolean {
    const last = this.#rules.findLast((rule) => (isDirectory || !rule.onlyDirectories) && rule.matches.test(path));
    return last !== undefined && !last.isNegated;
  }
}

function parse(line: string, directory: string): Rule[] | undefined {
  let pattern = line.replace(/(?<!\\)\s+$/, "");
  if (pattern === "" || pattern.startsWith("#")) return undefined;
  const isNegated = pattern.startsWith("!");
  if (isNegated) pattern = pattern.slice(1);
  const onlyDirectories = pattern.endsWith("/");
  if (onlyDirectories) pattern = pattern.slice(0, -1);
  const isAnchored = pattern.includes("/");
  if (pattern.startsWith("/")) pattern = pattern.slice(1);
  if (pattern === "") return undefined;
  const anywhere = isAnchored ? "" : "(?:.*/)?";
  return [{ matches: new RegExp(`^${escape(directory)}${anywhere}${translate(pattern)}$`, "s"), isNegated, onlyDirectories }];
}

const escape = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");

/** A glob as a regular expression. */
function translate(pattern: string): string {
  let out = "";
  for (let at = 0; at < pattern.length; at++) {
    const rest = pattern.slice(at);
    const set = /^\[(!|\^)?((?:\\.|[^\]\\]|(?<=\[[!^]?)\])+)\]/.exec(rest);
    if (rest.startsWith("**/")) {
      out += "(?:.*/)?";
      at += 2;
    } else if (rest.startsWith("/**") && rest.length === 3) {
      out += "/.+";
      at += 2;
    } else if (rest.startsWith("**")) {
      out += ".*";
      at += 1;
    } else if (rest.startsWith("*")) out += "[^/]*";
    else if (rest.startsWith("?")) out += "[^/]";
    else if (set) {
      out += `[${set[1] ? "^/" : ""}${(set[2] ?? "").replace(/[\\[\]^]/g, "\\$&")}]`;
      at += set[0].length - 1;
    } else if (rest.startsWith("\\") && rest.length > 1) {
      out += escape(rest.charAt(1));
      at += 1;
    } else out += escape(rest.charAt(0));
  }
  return out;
}
