"""TRL's side of `trainer.py`: runs under an interpreter that has trl 1.16.0. Prints one JSON line a step."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.bench.model.trainer_step import RATE, Sizes, Teller, prompts_of, reward


class Steps(TrainerCallback):
    def __init__(self, teller: Teller, tokenizer: Any) -> None:
        self.generated = 0.0
        self._teller = teller
        self._tokenizer = tokenizer
        self._began = 0.0
        self._rows: list[tuple[int, int]] = []
        """Tokens of the prompt and of the answer of each row."""

    def rewards(self, prompts: list[str], completion_ids: list[list[int]], **others: Any) -> list[float]:
        lengths = [len(self._tokenizer(prompt)["input_ids"]) for prompt in prompts]
        self._rows += [(length, len(ids)) for length, ids in zip(lengths, completion_ids, strict=True)]
        return [reward(ids) for ids in completion_ids]

    def on_step_begin(self, *arguments: Any, **others: Any) -> None:
        self._began = self._teller.now()

    def on_step_end(self, *arguments: Any, **others: Any) -> None:
        """Each row is computed for itself; padding is no work done."""
        whole = [prompt + new for prompt, new in self._rows]
        self._teller.say(
            self._teller.now() - self._began,
            self.generated,
            tokens=sum(whole),
            computed=sum(whole),
            predicted=sum(new for _, new in self._rows),
            pairs=sum(length * (length + 1) // 2 for length in whole),
        )
        self._rows.clear()


def main() -> None:
    folder, steps, sizes = sys.argv[1], int(sys.argv[2]), Sizes.read(sys.argv[3])
    if sizes.threads:
        torch.set_num_threads(sizes.threads)
    device = torch.device(sizes.device)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    teller = Teller(device)
    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output_dir=output,
            use_cpu=device.type == "cpu",
            bf16=sizes.precision == "bfloat16",
            per_device_train_batch_size=sizes.trl_rows,
            gradient_accumulation_steps=sizes.prompts * sizes.group // sizes.trl_rows,
            num_generations=sizes.group,
            max_completion_length=sizes.new,
            generation_kwargs={"min_new_tokens": sizes.new},
            temperature=1.0,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            beta=0.0,
            loss_type="dr_grpo",
            scale_rewards="none",
            max_steps=steps,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            gradient_checkpointing=False,
            disable_tqdm=True,
            seed=0,
        )
        clock = Steps(teller, tokenizer)
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=clock.rewards,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts_of(tokenizer, sizes, steps)}),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        generate = trainer._generate

        def timed(*arguments: Any, **others: Any) -> Any:
            began = teller.now()
            result = generate(*arguments, **others)
            clock.generated = teller.now() - began
            return result

        trainer._generate = timed
        trainer.train()


if __name__ == "__main__":
    main()
