"""Interactive segmentation: a user refines one object of an image click by click."""

import logging
from dataclasses import dataclass, field

import torch
from transformers import SamConfig, SamModel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
IMAGE = 512 if DEVICE == "cuda" else 192
HIDDEN = 384 if DEVICE == "cuda" else 96
LAYERS = 8 if DEVICE == "cuda" else 4
CLICKS = 4

logger = logging.getLogger(__name__)


def make_config():
    side = IMAGE // 16
    return SamConfig(
        vision_config=dict(
            hidden_size=HIDDEN,
            output_channels=64,
            num_hidden_layers=LAYERS,
            num_attention_heads=6,
            image_size=IMAGE,
            patch_size=16,
            window_size=6,
            global_attn_indexes=[1, 3],
            mlp_dim=2 * HIDDEN,
            num_pos_feats=32,
        ),
        prompt_encoder_config=dict(
            hidden_size=64,
            image_size=IMAGE,
            patch_size=16,
            image_embedding_size=side,
            mask_input_channels=8,
        ),
        mask_decoder_config=dict(
            hidden_size=64,
            mlp_dim=128,
            num_hidden_layers=1,
            num_attention_heads=4,
            iou_head_hidden_dim=64,
        ),
    )


def make_image():
    """A smooth background with one bright disc, and a little noise."""
    axis = torch.linspace(-1.0, 1.0, IMAGE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    disc = ((xx - 0.2) ** 2 + (yy + 0.1) ** 2 < 0.15).float()
    planes = torch.stack([disc, xx * 0.3, yy * 0.3])
    return (planes + 0.05 * torch.randn(3, IMAGE, IMAGE)).unsqueeze(0)


def make_clicks():
    points = torch.randint(IMAGE // 4, 3 * IMAGE // 4, (CLICKS, 2)).float()
    labels = torch.tensor([1, 1, 0, 1])
    return points, labels


@dataclass
class Session:
    """What one user has done so far on one image."""

    pixels: torch.Tensor
    points: list = field(default_factory=list)
    labels: list = field(default_factory=list)
    last_mask: torch.Tensor | None = None

    def add(self, point, label):
        self.points.append(point)
        self.labels.append(label)

    def prompts(self):
        pts = torch.stack(self.points).view(1, 1, -1, 2)
        lab = torch.stack(self.labels).view(1, 1, -1)
        return {"input_points": pts, "input_labels": lab}


class Annotator:
    """Stateless front of the model; all state lives in the session."""

    def __init__(self, model):
        self.model = model

    def click(self, session: Session, point, label):
        session.add(point, label)
        out = self.model(
            pixel_values=session.pixels,
            input_masks=session.last_mask,
            multimask_output=False,
            **session.prompts(),
        )
        session.last_mask = out.pred_masks[:, 0]
        return out.pred_masks[0, 0, 0], out.iou_scores[0, 0, 0]


def build():
    torch.manual_seed(0)
    model = SamModel(make_config()).eval()
    pixels = make_image()
    points, labels = make_clicks()
    model = model.to(DEVICE)
    pixels = pixels.to(DEVICE)
    points, labels = points.to(DEVICE), labels.to(DEVICE)
    tool = Annotator(model)
    logger.info("annotator ready, image %d, %d clicks", IMAGE, CLICKS)

    def step():
        with torch.inference_mode():
            session = Session(pixels)
            masks = []
            scores = []
            for i in range(CLICKS):
                mask, score = tool.click(session, points[i], labels[i])
                masks.append(mask)
                scores.append(score)
            return torch.stack(masks), torch.stack(scores)

    return step
