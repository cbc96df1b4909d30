import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "build", "coverage", "cli-linux-x64"] },
  js.configs.recommended,
  {
    files: ["src/**/*.ts", "test/**/*.ts"],
    extends: [...tseslint.configs.strictTypeChecked],
    languageOptions: { parserOptions: { project: ["./tsconfig.json", "./test/tsconfig.json"], tsconfigRootDir: import.meta.dirname } },
    rules: {
      // Numbers in messages are what they are for.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      // A loop that ends by `return` reads better than a flag.
      "@typescript-eslint/no-unnecessary-condition": ["error", { allowConstantLoopConditions: true }],
    },
  },
  {
    files: ["test/**/*.ts"],
    rules: {
      // node:test's functions return promises that its runner waits for.
      "@typescript-eslint/no-floating-promises": ["error", { allowForKnownSafeCalls: [{ from: "package", name: ["test", "describe", "it", "before", "after"], package: "node:test" }] }],
      "@typescript-eslint/no-non-null-assertion": "off",
    },
  },
  // An operation without parameters has none.
  { files: ["src/generated.ts"], rules: { "@typescript-eslint/no-generated-empty-object-type": "off" } },
  { files: ["scripts/*.mjs", "*.js"], languageOptions: { globals: { process: "readonly", console: "readonly", URL: "readonly" } } },
);
