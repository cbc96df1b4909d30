// Made by scripts/generate.mjs from the daemon's /v1/tools. Do not edit: a test compares it with the running daemon.
import type { ToolDefinition } from "./tools.js";

/** The names of the daemon's tools. */
export type ToolName = "read" | "write" | "edit" | "ls" | "grep" | "find" | "git" | "diff" | "delete" | "bash" | "run_background" | "wait" | "output" | "kill" | "expose_port" | "snapshot" | "restore" | "network_request";

/** The tools, in the order in which models should see them. */
export const TOOLS: readonly ToolDefinition[] = [
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": true,
      "title": "Read a file"
    },
    "description": "Reads a text file with line numbers, or an image as an image. Use offset and limit for a part of a long file. The numbers and the tab after them are not part of the file.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "limit": {
          "description": "How many lines to show; 2000 if it is absent.",
          "type": "integer"
        },
        "offset": {
          "description": "The first line to show; lines count from 1.",
          "type": "integer"
        },
        "path": {
          "description": "The file, absolute or relative to /workspace.",
          "type": "string"
        }
      },
      "required": [
        "path"
      ],
      "type": "object"
    },
    "name": "read",
    "outputSchema": {
      "properties": {
        "bytes": {
          "type": "integer"
        },
        "first_line": {
          "type": "integer"
        },
        "kind": {
          "type": "string"
        },
        "last_line": {
          "type": "integer"
        },
        "media_type": {
          "type": "string"
        },
        "next_offset": {
          "type": "integer"
        },
        "path": {
          "type": "string"
        },
        "total_lines": {
          "type": "integer"
        }
      },
      "type": "object"
    },
    "title": "Read a file"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": false,
      "title": "Write a file"
    },
    "description": "Writes a whole file: it is created, with its directories, or replaced. To change a part of a file, use edit.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "content": {
          "description": "The whole new content.",
          "type": "string"
        },
        "path": {
          "description": "The file, absolute or relative to /workspace. Missing directories are created.",
          "type": "string"
        }
      },
      "required": [
        "path",
        "content"
      ],
      "type": "object"
    },
    "name": "write",
    "outputSchema": {
      "properties": {
        "bytes": {
          "type": "integer"
        },
        "is_new": {
          "type": "boolean"
        },
        "path": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "Write a file"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": false,
      "readOnlyHint": false,
      "title": "Edit a file"
    },
    "description": "Replaces text in a file. old_string must match exactly, with its indentation, and once, unless replace_all is true. Several edits in one call are made all or not at all. Line endings and encoding of the file stay as they are.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "edits": {
          "description": "Several replacements in place of old_string and new_string. They are made one after the other: all of them, or none.",
          "items": {
            "additionalProperties": false,
            "properties": {
              "new_string": {
                "description": "The text to put in its place.",
                "type": "string"
              },
              "old_string": {
                "description": "The text to replace, exactly as it stands in the file.",
                "type": "string"
              },
              "replace_all": {
                "default": false,
                "description": "Replace every match.",
                "type": "boolean"
              }
            },
            "required": [
              "old_string",
              "new_string"
            ],
            "type": "object"
          },
          "type": "array"
        },
        "new_string": {
          "description": "The text to put in its place.",
          "type": "string"
        },
        "old_string": {
          "description": "The text to replace, exactly as it stands in the file, without line numbers. It must match once, unless replace_all is true.",
          "type": "string"
        },
        "path": {
          "description": "The file, absolute or relative to /workspace.",
          "type": "string"
        },
        "replace_all": {
          "description": "Replace every match.",
          "type": "boolean"
        }
      },
      "required": [
        "path"
      ],
      "type": "object"
    },
    "name": "edit",
    "outputSchema": {
      "properties": {
        "diff": {
          "type": "string"
        },
        "path": {
          "type": "string"
        },
        "replacements": {
          "type": "integer"
        }
      },
      "type": "object"
    },
    "title": "Edit a file"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": true,
      "title": "List a directory"
    },
    "description": "Lists a directory as a tree, with sizes, and leaves out what git ignores. Use find to look for names.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "depth": {
          "description": "How many levels of directories to show; 2 if it is absent.",
          "type": "integer"
        },
        "include_ignored": {
          "description": "Show what git ignores, too.",
          "type": "boolean"
        },
        "path": {
          "description": "The directory, absolute or relative to /workspace; /workspace if it is absent.",
          "type": "string"
        }
      },
      "type": "object"
    },
    "name": "ls",
    "outputSchema": {
      "properties": {
        "entries": {
          "type": "integer"
        },
        "is_cut": {
          "type": "boolean"
        },
        "path": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "List a directory"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": true,
      "title": "Search in files"
    },
    "description": "Searches the content of files with a regular expression, as ripgrep does, and leaves out what git ignores and binary files. The image needs no grep for it.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "context": {
          "description": "How many lines to show before and after each match.",
          "type": "integer"
        },
        "fixed": {
          "description": "The pattern is plain text, not a regular expression.",
          "type": "boolean"
        },
        "glob": {
          "description": "Search only files whose name matches this glob, such as *.py or src/**/*.ts.",
          "type": "string"
        },
        "ignore_case": {
          "description": "Do not distinguish upper and lower case.",
          "type": "boolean"
        },
        "include_ignored": {
          "description": "Search what git ignores, too.",
          "type": "boolean"
        },
        "limit": {
          "description": "The most matches to show; 200 if it is absent.",
          "type": "integer"
        },
        "mode": {
          "description": "Show the matching lines (lines), only the names of files (files), or the number of matches in each file (counts).",
          "enum": [
            "lines",
            "files",
            "counts"
          ],
          "type": "string"
        },
        "multiline": {
          "description": "Let the pattern match across lines.",
          "type": "boolean"
        },
        "path": {
          "description": "The file or directory to search, absolute or relative to /workspace; /workspace if it is absent.",
          "type": "string"
        },
        "pattern": {
          "description": "A regular expression in the syntax of ripgrep, without look-around and backreferences.",
          "type": "string"
        },
        "type": {
          "description": "Search only files of this type, such as py, rust, js, ts, go, java, c, md, json.",
          "type": "string"
        },
        "word": {
          "description": "Match whole words only.",
          "type": "boolean"
        }
      },
      "required": [
        "pattern"
      ],
      "type": "object"
    },
    "name": "grep",
    "outputSchema": {
      "properties": {
        "files": {
          "type": "integer"
        },
        "is_cut": {
          "type": "boolean"
        },
        "matches": {
          "type": "integer"
        }
      },
      "type": "object"
    },
    "title": "Search in files"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": true,
      "title": "Find files"
    },
    "description": "Finds files and directories by name, size, kind and time of change, and leaves out what git ignores.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "depth": {
          "description": "How many levels of directories to enter.",
          "type": "integer"
        },
        "include_ignored": {
          "description": "Look at what git ignores, too.",
          "type": "boolean"
        },
        "limit": {
          "description": "The most results; 500 if it is absent.",
          "type": "integer"
        },
        "max_size": {
          "description": "Only files of at most this size.",
          "type": "string"
        },
        "min_size": {
          "description": "Only files of at least this size, such as 10k or 5M.",
          "type": "string"
        },
        "modified_within_seconds": {
          "description": "Only what was changed within this many seconds.",
          "type": "integer"
        },
        "path": {
          "description": "The directory to look in, absolute or relative to /workspace; /workspace if it is absent.",
          "type": "string"
        },
        "pattern": {
          "description": "A glob. Without a slash it matches names at any depth (*.py); with one it matches the path (src/**/test_*.py).",
          "type": "string"
        },
        "sort": {
          "description": "The order: path, modified (the newest first) or size (the largest first).",
          "enum": [
            "path",
            "modified",
            "size"
          ],
          "type": "string"
        },
        "type": {
          "description": "Only files, directories or symbolic links.",
          "enum": [
            "file",
            "directory",
            "symlink"
          ],
          "type": "string"
        }
      },
      "type": "object"
    },
    "name": "find",
    "outputSchema": {
      "properties": {
        "is_cut": {
          "type": "boolean"
        },
        "paths": {
          "items": {
            "type": "string"
          },
          "type": "array"
        }
      },
      "type": "object"
    },
    "title": "Find files"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": true,
      "readOnlyHint": false,
      "title": "Run git"
    },
    "description": "Runs git with any arguments, without a pager or an editor. Long output of status, diff, log and show is shortened.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "args": {
          "anyOf": [
            {
              "type": "string"
            },
            {
              "items": {
                "type": "string"
              },
              "type": "array"
            }
          ],
          "description": "The arguments of git: one text such as \"log --oneline -5\", or a list of words."
        },
        "cwd": {
          "description": "The directory, absolute or relative to /workspace; the shell's directory if it is absent.",
          "type": "string"
        }
      },
      "required": [
        "args"
      ],
      "type": "object"
    },
    "name": "git",
    "outputSchema": {
      "properties": {
        "cwd": {
          "type": "string"
        },
        "exec_id": {
          "type": "string"
        },
        "exit_code": {
          "type": "integer"
        },
        "is_running": {
          "type": "boolean"
        },
        "is_shortened": {
          "type": "boolean"
        },
        "network_denied": {
          "items": {
            "type": "string"
          },
          "type": "array"
        },
        "output_bytes": {
          "type": "integer"
        },
        "timed_out": {
          "type": "boolean"
        },
        "was_cancelled": {
          "type": "boolean"
        }
      },
      "type": "object"
    },
    "title": "Run git"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": true,
      "title": "Compare files"
    },
    "description": "Compares two files, or a file with what it was when read, write, edit or diff last had it. The answer is a unified diff.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "other": {
          "description": "The file to compare it with. If it is absent, the file is compared with what it was at the last call of read, write, edit or diff.",
          "type": "string"
        },
        "path": {
          "description": "The file, absolute or relative to /workspace.",
          "type": "string"
        }
      },
      "required": [
        "path"
      ],
      "type": "object"
    },
    "name": "diff",
    "outputSchema": {
      "properties": {
        "diff": {
          "type": "string"
        },
        "is_same": {
          "type": "boolean"
        }
      },
      "type": "object"
    },
    "title": "Compare files"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": false,
      "readOnlyHint": false,
      "title": "Delete a file"
    },
    "description": "Deletes a file, a symbolic link or, with recursive, a directory with everything in it.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "path": {
          "description": "The file or directory, absolute or relative to /workspace.",
          "type": "string"
        },
        "recursive": {
          "description": "Delete a directory with everything in it.",
          "type": "boolean"
        }
      },
      "required": [
        "path"
      ],
      "type": "object"
    },
    "name": "delete",
    "outputSchema": {
      "properties": {
        "path": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "Delete a file"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": true,
      "readOnlyHint": false,
      "title": "Run a command"
    },
    "description": "Runs a command in a bash that stays: directory, variables, functions and virtualenvs are there for the next command. Long output is shortened, with failures first; the tool output shows all of it. The answer has the exit code, the directory and what the network policy denied. Nothing can break the shell; restart: true starts it anew.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "background": {
          "description": "Start the command in the background and return its exec_id, as run_background does.",
          "type": "boolean"
        },
        "command": {
          "description": "The command, in the syntax of bash. Directory, variables and functions stay for the next command.",
          "type": "string"
        },
        "restart": {
          "description": "Start the shell anew, without variables and functions. Alone or before the command.",
          "type": "boolean"
        },
        "timeout_seconds": {
          "description": "The time limit in seconds. After it the command is interrupted, and the shell stays usable.",
          "type": "integer"
        }
      },
      "type": "object"
    },
    "name": "bash",
    "outputSchema": {
      "properties": {
        "cwd": {
          "type": "string"
        },
        "exec_id": {
          "type": "string"
        },
        "exit_code": {
          "type": "integer"
        },
        "is_running": {
          "type": "boolean"
        },
        "is_shortened": {
          "type": "boolean"
        },
        "network_denied": {
          "items": {
            "type": "string"
          },
          "type": "array"
        },
        "output_bytes": {
          "type": "integer"
        },
        "timed_out": {
          "type": "boolean"
        },
        "was_cancelled": {
          "type": "boolean"
        }
      },
      "type": "object"
    },
    "title": "Run a command"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": true,
      "readOnlyHint": false,
      "title": "Start a command in the background"
    },
    "description": "Starts a command that keeps running, such as a server, and returns its exec_id for wait, output and kill.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "command": {
          "description": "The command, in the syntax of bash. It starts with a copy of the shell's directory and variables.",
          "type": "string"
        }
      },
      "required": [
        "command"
      ],
      "type": "object"
    },
    "name": "run_background",
    "outputSchema": {
      "properties": {
        "exec_id": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "Start a command in the background"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": true,
      "title": "Wait for a command"
    },
    "description": "Waits until a command of run_background has ended, or the time is over, and shows its output, shortened.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "exec_id": {
          "description": "The exec_id that run_background or bash returned.",
          "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
          "type": "string"
        },
        "timeout_seconds": {
          "description": "How many seconds to wait; 60 if it is absent, at most 600.",
          "type": "integer"
        }
      },
      "required": [
        "exec_id"
      ],
      "type": "object"
    },
    "name": "wait",
    "outputSchema": {
      "properties": {
        "cwd": {
          "type": "string"
        },
        "exec_id": {
          "type": "string"
        },
        "exit_code": {
          "type": "integer"
        },
        "is_running": {
          "type": "boolean"
        },
        "is_shortened": {
          "type": "boolean"
        },
        "network_denied": {
          "items": {
            "type": "string"
          },
          "type": "array"
        },
        "output_bytes": {
          "type": "integer"
        },
        "timed_out": {
          "type": "boolean"
        },
        "was_cancelled": {
          "type": "boolean"
        }
      },
      "type": "object"
    },
    "title": "Wait for a command"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false,
      "readOnlyHint": true,
      "title": "Read the output of a command"
    },
    "description": "Shows the output of a command as it was printed, from an offset on, also of a command that still runs.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "exec_id": {
          "description": "The exec_id of a command.",
          "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
          "type": "string"
        },
        "from": {
          "description": "The offset of the first byte to show; 0 if it is absent.",
          "type": "integer"
        },
        "max_bytes": {
          "description": "The most bytes to show; 32768 if it is absent.",
          "type": "integer"
        }
      },
      "required": [
        "exec_id"
      ],
      "type": "object"
    },
    "name": "output",
    "outputSchema": {
      "properties": {
        "exec_id": {
          "type": "string"
        },
        "exit_code": {
          "type": "integer"
        },
        "from": {
          "type": "integer"
        },
        "is_running": {
          "type": "boolean"
        },
        "next_from": {
          "type": "integer"
        }
      },
      "type": "object"
    },
    "title": "Read the output of a command"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": false,
      "readOnlyHint": false,
      "title": "End a command"
    },
    "description": "Ends a command and tells its exit code, or sends it a signal.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "exec_id": {
          "description": "The exec_id of a command.",
          "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
          "type": "string"
        },
        "signal": {
          "description": "A signal to send, such as TERM, HUP or USR1. If it is absent, the command is ended: by INT, and by TERM and KILL if it goes on.",
          "type": "string"
        }
      },
      "required": [
        "exec_id"
      ],
      "type": "object"
    },
    "name": "kill",
    "outputSchema": {
      "properties": {
        "exec_id": {
          "type": "string"
        },
        "exit_code": {
          "type": "integer"
        },
        "is_running": {
          "type": "boolean"
        },
        "signal": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "End a command"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": false,
      "openWorldHint": true,
      "readOnlyHint": false,
      "title": "Get a link to a server"
    },
    "description": "Gives a link that opens a server of the sandbox in a person's browser, for a time.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "port": {
          "description": "The port on which a server in the sandbox listens.",
          "type": "integer"
        },
        "ttl_seconds": {
          "description": "How long the link is good, in seconds; an hour if it is absent.",
          "type": "integer"
        }
      },
      "required": [
        "port"
      ],
      "type": "object"
    },
    "name": "expose_port",
    "outputSchema": {
      "properties": {
        "expires_at": {
          "type": "string"
        },
        "url": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "Get a link to a server"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": false,
      "openWorldHint": false,
      "readOnlyHint": false,
      "title": "Make a snapshot"
    },
    "description": "Keeps all files and the state of the shells, to come back to with restore. Processes are not part of it.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "name": {
          "description": "A name for the snapshot.",
          "type": "string"
        }
      },
      "type": "object"
    },
    "name": "snapshot",
    "outputSchema": {
      "properties": {
        "snapshot_id": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "Make a snapshot"
  },
  {
    "annotations": {
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": false,
      "readOnlyHint": false,
      "title": "Go back to a snapshot"
    },
    "description": "Continues in a new sandbox with the files and shells of a snapshot. The answer has the id of its session.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "snapshot_id": {
          "description": "The snapshot_id that snapshot returned.",
          "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
          "type": "string"
        }
      },
      "required": [
        "snapshot_id"
      ],
      "type": "object"
    },
    "name": "restore",
    "outputSchema": {
      "properties": {
        "session_id": {
          "type": "string"
        }
      },
      "type": "object"
    },
    "title": "Go back to a snapshot"
  },
  {
    "annotations": {
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": true,
      "readOnlyHint": false,
      "title": "Ask for network access"
    },
    "description": "Asks for access to hosts that a command was denied. The operator's policy decides; a refusal says what to do.",
    "inputSchema": {
      "additionalProperties": false,
      "properties": {
        "hosts": {
          "description": "The hosts, as in the notes about denied connections: example.com, example.com:22 or *.example.com.",
          "items": {
            "type": "string"
          },
          "type": "array"
        }
      },
      "required": [
        "hosts"
      ],
      "type": "object"
    },
    "name": "network_request",
    "outputSchema": {
      "properties": {
        "allowed": {
          "items": {
            "type": "string"
          },
          "type": "array"
        }
      },
      "type": "object"
    },
    "title": "Ask for network access"
  }
];
