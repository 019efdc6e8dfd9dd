"""TRL's side of `trainer.py`: runs under an interpreter that has trl 1.16.0. Prints one JSON line a step."""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.bench.trainer_step import GROUP, NEW, PROMPTS, RATE, TRL_ROWS, prompts_of, reward, say


def rewards(completion_ids: list[list[int]], **others: Any) -> list[float]:
    return [reward(ids) for ids in completion_ids]


class Steps(TrainerCallback):
    def __init__(self) -> None:
        self.generated = 0.0
        self._began = 0.0

    def on_step_begin(self, *arguments: Any, **others: Any) -> None:
        self._began = time.process_time()

    def on_step_end(self, *arguments: Any, **others: Any) -> None:
        say(time.process_time() - self._began, self.generated)


def main() -> None:
    folder, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output_dir=output,
            use_cpu=True,
            bf16=True,
            per_device_train_batch_size=TRL_ROWS,
            gradient_accumulation_steps=PROMPTS * GROUP // TRL_ROWS,
            num_generations=GROUP,
            max_completion_length=NEW,
            generation_kwargs={"min_new_tokens": NEW},
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
        )
        clock = Steps()
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=rewards,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": prompts_of(tokenizer, steps)}),
            processing_class=tokenizer,
            callbacks=[clock],
        )
        generate = trainer._generate

        def timed(*arguments: Any, **others: Any) -> Any:
            began = time.process_time()
            result = generate(*arguments, **others)
            clock.generated = time.process_time() - began
            return result

        trainer._generate = timed
        trainer.train()


if __name__ == "__main__":
    main()
