"""Operations on pipelines, their writers and plug-ins."""
