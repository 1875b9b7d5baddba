"""Write the corpus: what fuzzing found, and inputs that were thought of, small enough to be kept.

Run it from the root with ``PYTHONPATH=tests/support``. An input that fuzzing finds is added here by
hand, as the smallest change that still shows it.
"""

from __future__ import annotations

import json
from typing import Any

from fuzzing.corpus import CORPUS

DIGITS = "9" * 4_400
LOGITS = '"logits_recorded": {\n   "dtype": "float32",\n   "shape": [\n    %d\n   ]'
DEEP = "[" * 2_000 + "]" * 2_000

TEXTS: dict[str, dict[str, str]] = {
    "policy": {
        "a-number-of-4400-digits": f"window_ulp = {DIGITS}\n",
        "nested-tables": "a." * 1_200 + "a = 1\n",
        "not-a-number": "set_rate = nan\n",
        "negative-infinity": "noise_abs = -inf\n",
        "a-date-for-a-name": "name = 1979-05-27\n",
        "twice": "set_rate = 1e-5\nset_rate = 1e-5\n",
        "a-table-for-a-limit": "[set_rate]\nx = 1\n",
    },
    "claims": {
        "empty": "",
        "a-claim-that-is-a-number": "name = 'x'\nclaim = 1\n",
        "digits": f"name = 'x'\n[[claim]]\nid = 'a'\nnumber = {DIGITS}\n",
        "exponent": "name = 'x'\n[[claim]]\nid = 'a'\nnumber = 1e999999999\n",
        "an-exponent-that-no-decimal-holds": f"name = 'x'\n[[claim]]\nnumber = 2.6e-{DIGITS}\n",
        "deep": f"name = {DEEP}\n",
    },
    "case": {
        "digits": f'{{"id": "x", "logits": [{DIGITS}]}}',
        "deep": f'{{"id": "x", "logits": {DEEP}}}',
        "map-beyond-int64": json.dumps(
            {
                "id": "M", "top_k": 1, "scoring": {"function": "sigmoid"},
                "logits": [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]],
                "a": {"ids": [[0], [1], [0]], "weights": [[1.0], [1.0], [1.0]]},
                "b": {"ids": [[1], [0], [1]], "weights": [[0.3], [0.4], [0.1]]},
                "map": [10**30, 0],
            }
        ),
        "map-with-a-key-of-4400-digits": json.dumps(
            {
                "id": "M", "top_k": 1, "scoring": {"function": "sigmoid"}, "logits": [1.0, 0.0],
                "a": {"ids": [0]}, "b": {"ids": [1]}, "map": {DIGITS: 1},
            }
        ),
        "two-thousand-sums": json.dumps(
            {
                "id": "S", "top_k": 1, "scoring": {"function": "reduction"}, "acc": "fp32",
                "logits": [256.0, 1.0, 1.0, 1.0], "a": {"ids": [0], "weights": [259.0]},
                "b": {"ids": [0], "weights": [1] * 2_000},
            }
        ),
        "a-term-for-each-of-two-thousand-ranks": json.dumps(
            {
                "id": "T", "top_k": 1, "scoring": {"function": "reduction"}, "acc": "fp32",
                "logits": [1.0] * 2_000, "a": {"ids": [0], "weights": [259.0]},
                "b": {"ids": [0], "weights": [258.0]},
            }
        ),
        "ten-thousand-strides": json.dumps(
            {
                "id": "B", "top_k": 1, "scoring": {"function": "sigmoid"},
                "logits": [[1.0], [2.0]], "a": {"ids": [[0], [0]]}, "b": {"ids": [[0], [0]]},
                "buffer": [0.5] * 10_000, "stride": 4,
            }
        ),
        "nothing-finite": json.dumps(
            {
                "id": "N", "top_k": 1, "scoring": {"function": "softmax"},
                "logits": ["NaN", "Infinity", "-Infinity"],
                "a": {"ids": [0], "weights": ["NaN"]}, "b": {"ids": [2], "weights": [1e300]},
            }
        ),
    },
    "spec": {
        "an-infinite-bias": "special:bias=1e308,geometry=mini",
        "three-million-experts": "bf16_logits:experts=3.2M,geometry=mini",
        "a-terabyte-of-weights": "gaussian:geometry=9999999x9999999x9999999x1",
        "rows-without-end": "gaussian:rows=999999999999G",
        "no-value": "gaussian:rows=",
        "a-null": "gaussian:\x00=1",
    },
}  # fmt: skip

EDITS: dict[str, dict[str, dict[str, Any]]] = {
    "bank": {
        "digits": {
            "edits": [{"file": "bank.json", "old": '"rows": 5', "new": f'"rows": {DIGITS}'}]
        },
        "deep": {
            "edits": [{"file": "bank.json", "old": '"rows": 5', "new": f'"rows": {DEEP}'}]
        },
        "a-trillion-rows": {
            "edits": [{"file": "bank.json", "old": '"rows": 5', "new": '"rows": 1000000000000'}]
        },
        "four-billion-values-a-record": {
            "edits": [{"file": "bank.json", "old": LOGITS % 6, "new": LOGITS % 4294967302}]
        },
        "a-field-twice": {
            "edits": [{"file": "bank.json", "old": '"rows": 5', "new": '"rows": 5, "rows": 5'}]
        },
        "a-column-name-that-is-no-utf-8": {
            "edits": [{"file": "rows.arrow", "old": "hidden", "new": "hidd\xffn"}], "rehash": True
        },
        "other-rows-under-the-old-hash": {
            "edits": [{"file": "rows.arrow", "old": "\x00\x00\x01\x00", "new": "\x00\x00\x02\x00"}]
        },
    },
    "evidence": {
        "a-record-that-is-not-finite": {
            "edits": [{"file": "audit.json", "old": '"ranks": 2', "new": '"ranks": NaN'}],
            "rehash": True,
        },
        "a-record-of-1e999": {
            "edits": [{"file": "audit.json", "old": '"ranks": 2', "new": '"ranks": 1e999'}],
            "rehash": True,
        },
        "a-record-nested-too-deep": {
            "edits": [{"file": "audit.json", "old": '"ranks": 2', "new": f'"ranks": {DEEP}'}],
            "rehash": True,
        },
        "a-report-that-is-no-utf-8": {
            "edits": [{"file": "report.md", "old": "##", "new": "##\xff"}], "rehash": True
        },
        "a-report-with-other-line-ends": {
            "edits": [{"file": "report.md", "old": "\n", "new": "\r\n"}], "rehash": True
        },
        "a-record-with-other-line-ends": {
            "edits": [{"file": "audit.json", "old": "\n", "new": "\r\n"}], "rehash": True
        },
        "a-manifest-with-other-line-ends": {
            "edits": [{"file": "manifest.json", "old": "\n", "new": "\r\n"}]
        },
        "a-coverage-without-its-reason": {
            "edits": [{"file": "audit.json", "old": ',\n   "reason": ""', "new": ""}],
            "rehash": True,
        },
        "a-file-name-of-4400-digits": {
            "edits": [{"file": "manifest.json", "old": '"junit.xml"', "new": f'"{DIGITS}"'}]
        },
        "another-verdict": {
            "edits": [{"file": "audit.json", "old": '"FAIL"', "new": '"PASS"'}], "rehash": True
        },
        "a-gate-of-another-form": {
            "edits": [{"file": "audit.json", "old": '"gate": null', "new": '"gate": {"banks": 1}'}],
            "rehash": True,
        },
        "no-gate": {
            "edits": [{"file": "audit.json", "old": '"gate": null', "new": '"gates": null'}],
            "rehash": True,
        },
        "another-class": {
            "edits": [{"file": "audit.json", "old": "BEHAVIOURAL", "new": "BITWISE"}],
            "rehash": True,
        },
    },
}  # fmt: skip


def main() -> None:
    """Write every file anew."""
    for reader, texts in TEXTS.items():
        place = CORPUS / reader
        place.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (place / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    for reader, inputs in EDITS.items():
        place = CORPUS / reader
        place.mkdir(parents=True, exist_ok=True)
        for name, document in inputs.items():
            text = json.dumps({"seed": 0, **document}, indent=1) + "\n"
            (place / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()
