"""Who calls: tokens, the keys they are signed with, what they allow; and the certificate that the listener shows."""
