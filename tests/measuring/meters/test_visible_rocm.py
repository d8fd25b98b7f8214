from __future__ import annotations

import pytest

from joulediff.measuring.meters.visible import visible_places

CARDS = [["GPU-aa00"], ["GPU-aa11", "GPU-0123-11"], ["GPU-bb22"], ["GPU-cc33"]]


@pytest.mark.parametrize(
    ("env", "places"),
    [
        ({}, [0, 1, 2, 3]),
        ({"ROCR_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"ROCR_VISIBLE_DEVICES": " 2 , 0 "}, [2, 0]),
        ({"ROCR_VISIBLE_DEVICES": "3,GPU-BB22"}, [3, 2]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-b"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0123-11"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
        ({"ROCR_VISIBLE_DEVICES": "0,0,1"}, [0]),
        ({"ROCR_VISIBLE_DEVICES": "1,9,2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "1,-1,2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-aa,0"}, []),
        ({"ROCR_VISIBLE_DEVICES": "GPU-"}, []),
        ({"HIP_VISIBLE_DEVICES": "1,3"}, [1, 3]),
        ({"HIP_VISIBLE_DEVICES": "1,1,3"}, [1, 3]),
        ({"HIP_VISIBLE_DEVICES": "1, 3"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": ""}, [0, 1, 2, 3]),
        ({"HIP_VISIBLE_DEVICES": "GPU-cc33"}, [3]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "3,2,1", "HIP_VISIBLE_DEVICES": "2,0"}, [1, 3]),
        ({"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "0,2"}, [3]),
        ({"ROCR_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "GPU-bb22"}, []),
    ],
)
def test_visible_places(env: dict[str, str], places: list[int]) -> None:
    assert visible_places(CARDS, env) == places
